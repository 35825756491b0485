// Package cgroup keeps the processes of a run together: it starts them inside
// a group of their own, limits and accounts for them, and ends them all.
//
// # Vocabulary
//
// A Host is what this machine allows, found by trying. A Session is one run;
// a Group is one set of processes in it: the agent, and beside it whatever the
// runner starts on the run's behalf. A Session's limits hold for all of its
// groups together. The Guard is a small process that ends a Session when the
// runner is killed.
//
// On disk a session is <base>/assay-run/<run id>, holding no process itself,
// with one directory per group, on every hierarchy in use:
//
//   - unified: cgroup2 has the processes and the limits;
//   - hybrid: a cgroup2 without controllers has the identity, kill, freeze and
//     CPU time, v1 hierarchies have the limits and the other counters;
//   - legacy: only v1 hierarchies; killing is freeze-and-kill;
//   - none: no cgroup is writable. A group is then a tree of processes, found
//     by descent through /proc, by the environment marker [MarkerKey] and by the
//     soft limit on file locks, which no kernel enforces, with the runner as its
//     subreaper. Children that the program starts by other ways than a Group,
//     in a session (setsid) of their own, are taken for adopted members there.
//
// The base is the cgroup that the runner itself is in, so that a run never
// escapes the limits, or the end, of what the runner belongs to. On cgroup2,
// a cgroup with processes in it cannot hand controllers to its children (the
// "no internal processes" rule of cgroup-v2.rst; the root is exempt). So when,
// and only when, a limit needs a controller that the base cannot hand out:
//
//   - if the runner is alone in its cgroup (systemd-run --scope, a container's
//     entry point) it moves itself, never anybody else, into the leaf
//     <base>/assay-run-runner, and back when the last session is removed;
//   - else the nearest writable ancestor that hands it out already becomes the
//     base, unless a cgroup in between sets a limit that would be escaped. The
//     guard is in <base>/assay-run/<run id>.guard then: what ends the runner's
//     cgroup as a whole, as systemd ends a unit, leaves the guard to end the session;
//   - else the limit is refused, naming the controller and how to get it.
//
// # Limits
//
// A memory limit covers memory and swap together: memory.max with
// memory.swap.max 0, on v1 the same value in memory.limit_in_bytes and, where
// it exists, memory.memsw.limit_in_bytes. memory.oom.group stays 0: the kernel
// ends one process, as it would without us, and the agent may live on. OOM
// kills are counted by the kernel (memory.events, memory.oom_control), which
// distinguishes them from any other SIGKILL. A pids limit counts threads and is
// exact: none of the runner's own processes counts against it.
//
// # systemd
//
// A session below the runner's own cgroup is part of the runner's systemd unit and
// ends with it. systemd leaves the session alone, with one exception: if the unit is
// not delegated, systemd stops it when the kernel kills one of its processes because
// memory ran out. Controllers warns of this for units of the system manager. It
// cannot for a user's units: delegated and other units look the same there.
//
// # Promises
//
// A child is in its group before its first instruction: it is cloned into it
// (clone3 with CLONE_INTO_CGROUP), or, where the kernel refuses that or a v1
// pids limit must be exact, a re-exec of this binary joins the group itself
// and then becomes the command. On a terminal it is the child of another re-exec,
// which is in no group (see [Job]). These helpers and the guard run the program's own
// binary. Their main function is in package reexec below this one, which only a main
// package imports; without that import, calls that need a helper fail with
// [ErrNoHelper]. Removing a session leaves nothing behind on any hierarchy. Every
// method is safe for concurrent use.
//
// # Inside
//
// Two backends hold a session together behind one interface: internal/dirs,
// cgroup directories, and internal/proctree, the tree of processes. The helper
// processes are in internal/helper, what all share in internal/procs.
//
// containerd/cgroups supplies the mode detection; the rest is written to
// cgroupfs directly, since its statistics report a missing controller as 0 and
// its managers only know start-then-move.
package cgroup
