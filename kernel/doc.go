// Package kernel is the user side of the eBPF observer: it loads, attaches and
// self-tests the programs of package bpf, decodes and accounts for what they
// report, and says what could not be seen.
//
// [Open] observes one session, which is a cgroup2 directory and everything
// below it; [Observer.Read] hands over one [Event] after the other;
// [Observer.Stop] ends it; [Report] is the account. [Probe] and [Coverage] tell
// what this host allows and what this tier cannot see.
//
// A hook is a group of kernel events with one account. Whatever it fires for is
// filtered (of no interest), coalesced (a repeat, counted in a slot), emitted
// (in the ring) or dropped (no room), and the four add up exactly, per CPU. The
// ring's records are then received, decoded, and delivered. Repeats come later
// as events of their own with a count: on pressure through the ring, the rest
// at the end.
//
// All sessions of a build on a host share one set of programs, pinned in bpffs: the
// first loads it, the last removes it, and each has a seat in it, with rings,
// counters and slots of its own. Which sessions a process is in, the programs look
// up by its cgroup, at one cost however many there are. Where nothing can be shared
// a session has a set of its own, of one seat: [Report].Alone says why. Locks on
// directories in bpffs say who is there, and die with their holder; nothing runs in
// between.
//
// Whoever is root can reach all that with bpf(2). So a session looks every two
// seconds and at its end whether everything is as it was, watches for calls of its
// own processes that change what they did not make, and checks that no record is
// missing by their numbers. What a root process did to a pinned set before a session
// began is found as far as the objects are others than were pinned, or the self-test
// shows it.
//
// Events that were under way in processes which were in the session before Open
// are seen from then on; their forks and exits do not match, and the report
// says so.
//
// Programs, records and meanings are apart: bpf/record.h is the form of a
// record, syscalls.go the table of system calls, the decoder the only reader.
// Another tier of hooks fills the same record.
package kernel
