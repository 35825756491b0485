// Package kernel is the user side of the eBPF observer: it loads, attaches and
// self-tests the programs of package bpf, decodes and accounts for what they
// report, and says what could not be seen.
//
// [Open] observes one session, which is a cgroup2 directory and everything
// below it; [Observer.Read] hands over one [Event] after the other;
// [Observer.Stop] ends it; [Report] is the account. [Probe] reports what this host
// allows, [Coverage] what this tier cannot see.
//
// A hook is a group of kernel events with one account. Whatever it fires for is
// filtered (of no interest), coalesced (a repeat, counted in a slot), emitted
// (in the ring) or dropped (no room), and the four add up exactly, per CPU. One
// thread takes the records from the ring into a queue (package internal/backlog);
// the goroutine of [Observer.Read] receives, decodes and delivers them from there.
// Repeats come later as events of their own with a count: on pressure through the
// ring, the rest at the end.
//
// All sessions of a build on a host share one set of programs, pinned in bpffs: the
// first loads it, the last removes it, and each has a slot in it, with its own rings,
// counters and slots. The programs look up a process's sessions by its cgroup; the
// cost does not grow with the number of sessions. Where nothing can be shared, a
// session loads its own set with a single slot, and [Report].Alone says why. Locks on
// directories in bpffs show which sets are in use. The kernel releases a lock when its
// holder dies, so no daemon is needed.
//
// Root can change all of this with bpf(2). So a session checks every two seconds and
// at its end that everything is unchanged, watches its own processes for bpf(2) calls
// that change objects they did not create, and checks the records' numbers for gaps.
//
// A session that finds a set in place trusts it if only root can have pinned it, its
// manifest names this build, and the ids and tags of its programs are those of the
// manifest. [Coverage] names that trust. [HostObservers] loads what this build would load
// and compares the two.
//
// Processes that were in the session before Open are observed from Open on. Their
// forks and exits do not match, and the report says so.
//
// Programs, records and meanings are apart: bpf/record.h is the form of a
// record, syscalls.go the table of system calls, the decoder the only reader.
// Another tier of hooks fills the same record.
package kernel
