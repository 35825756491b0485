// Package runner runs a command in its own cgroup and records the run.
//
// A [Spec] is plain data that validates anywhere. [Run] starts it, forwards
// stdio and signals, enforces its limits, and leaves the layers and documents
// of a bundle with a [Recorder]. The package never exits the process and never
// writes to its standard streams except for the child's own bytes.
//
// # Parts
//
// A run is made of parts of one shape (type part, in part_linux.go): the
// contract, the containment, the agent's side, the observation, the standard
// streams, the command. newRun makes them and gives each just what it needs.
// Run opens them in order, supervises the command, and closes them in reverse
// order. A part adds its results to result.json when it is closed, and its reasons to
// observation-health.json after all parts are closed. It appends to a layer through
// the run's evidence.Log.
//
// To add a part:
//
//   - Write a type with open, close and health in a file of its own. It gets the
//     fields of the Spec and the other parts that it needs as arguments, never
//     the run. If open fails, with a *runError, the command does not start. If close
//     fails, evidence is missing, and the process exits with 125.
//   - Add one line to the list of parts in newRun. What is opened before it is
//     still open when it is closed.
//   - If it changes how the command starts (environment, attributes, a program
//     in front of it), give it the method shape, which gets the *exec.Cmd just
//     before the start.
//   - What has to be done before the command starts, but has nothing to undo and
//     nothing to report, is a step.
//
// # Where the time of a short run goes
//
// This is a profile (perf record, Linux 6.18) of the CPU time of all processes in a run
// of /bin/true, when the observer is already loaded. Page faults take a seventh of the
// time, spread over all items: three processes of one large Go program touch their
// memory for the first time.
//
//   - 18%: package kernel: open what is pinned, make the session's maps and links, read
//     the self-test's records, check at the end.
//   - 14%: start the guard and the self-test's process, and run them.
//   - 13%: try, make and remove cgroup directories, and read their counters, on a host
//     with several hierarchies.
//   - 12%: make the spool, write the documents and the bundle, and sync them to the disk.
//   - 7%: Go's monitor thread, which wakes every 20 us while threads block in calls.
//   - 6%: switch threads.
//   - 5%: compare the loaded observer with this build (package kernel). This runs at low
//     priority, in parallel with the preparation and the command. Half of it walks
//     through the kernel's types.
//   - 4%: start the Go runtime; 4%: initialize packages.
//   - The remainder is spread thin: command line, starting the command. The documents'
//     types (1%) are learnt while the command runs.
//
// Without the kernel layer, the longest path through such a run takes 15 to 20 ms on two busy
// CPUs; the run takes 19 ms of CPU time. In milliseconds of that path:
//
//   - 3 until main runs. Half of it is the Go runtime: CPUID, which a virtual machine makes
//     slow, the cgroup's CPU limit, the tables of interfaces. Half is package init;
//   - 1 to probe the host, 1.5 to make the session's cgroups, and 1 to start the guard (Contain).
//     The record, the probe of the output, and the spool, 2 in all, are made beside these;
//   - 0.5 for the agent's socket, and 1.5 to start the command once the guard is out of reach;
//   - 2 until the command's end is known, and 1 for counters and directories;
//   - 6 for the documents, the bundle and its syncs.
//
// Go's monitor thread takes 2 ms of the CPU time, and page faults about 1 ms. To have Go
// deliver fifty signals took 1.5 ms and 110 switches of threads; most of them have a handler
// of ours now (package cmd/internal/signals). With the observer in place, opening its
// pins takes 3 to 4 ms more, the session's links 2, and the self-test 2; each needs what
// is before it, and the last two need the session.
//
// The smallest Go program that starts a command takes 2 ms. Two of them, one started by
// the other like runner and guard, take 3.5 ms.
//
// The shares above are from before package cgroup/steps. Since then, Go no longer starts in the
// guard and in the self-test's process: a run takes a third fewer page faults, and most of the 14% is gone.
//
// From the end of a command with 100 events to the end of the run, 9.7 ms pass on two quiet
// CPUs; 11.2 before the session was removed and the observer freed beside the documents. The
// fastest time of each step in 40 runs, measured with probes (bpftrace), which add up to
// 1.5 ms to the whole:
//
//   - 1.0: the kernel takes the command's process apart, and the runner learns of it;
//   - 0.7: make sure that nothing outlived the command, and that its output went out;
//   - 0.9: check the observer, and take in the last events;
//   - 1.0: close the other parts, and write run_finished;
//   - 2.3: write the documents, and wait for the removal of the session beside them;
//   - 1.6: pack the bundle;
//   - 0.8: sync the bundle, then its folder;
//   - 1.1: remove the spool, three of whose files and folders have a block on the disk, each of
//     which the disk is told of;
//   - 1.8: the kernel takes our process apart, with 20 threads and 15 MB.
//
// 4.7 ms of it are the kernel's work on the two processes and the disk's.
//
// The first run on a host takes 2.7 times as much CPU time, and 22 ms longer on two quiet CPUs.
// In 18 of these it loads the observer: 2 to read the kernel's types and make the maps, side by
// side, 14 for the kernel to check the programs, on both CPUs, and 2 to attach them. More
// than half of all CPU time is for the check.
package runner
