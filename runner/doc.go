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
// Run opens them in order, supervises the command, and closes them in reverse.
// A part adds what it knows to result.json when it is closed, and to
// observation-health.json after all are closed; what it appends to a layer goes
// through the run's evidence.Log.
//
// To add a part:
//
//   - Write a type with open, close and health in a file of its own. It gets the
//     fields of the Spec and the other parts that it needs as arguments, never
//     the run. An error of open is a *runError and keeps the command from
//     starting. An error of close tells of evidence that is missing, and makes
//     the process exit with 125.
//   - Add one line to the list of parts in newRun. What is opened before it is
//     still open when it is closed.
//   - If it changes how the command starts (environment, attributes, a program
//     in front of it), give it the method shape, which gets the *exec.Cmd just
//     before the start.
//   - Something to do before the command starts, with nothing to undo and
//     nothing to tell, is a step.
//
// # Where the time of a short run goes
//
// This is a profile (perf record, Linux 6.18) of the CPU time of all processes in a run
// of /bin/true with the observer in place. Page faults take an eighth of the time, spread
// over all items: mostly, three processes of one large Go program touch their memory
// for the first time.
//
//   - 22%: compare the observer in place with this build, at low priority beside the
//     preparation and the command (package kernel): half of it reads the embedded
//     object, a quarter relocates the programs.
//   - 16%: the rest of package kernel: open what is pinned, make the session's maps
//     and links, read the self-test's records, check at the end.
//   - 13%: start the guard and the self-test's process, and run them.
//   - 12%: try, make and remove cgroup directories, and read their counters, on a host
//     with several hierarchies.
//   - 8%: make the spool, write the documents and the bundle, and sync them to the disk.
//   - 7%: Go's monitor thread, which looks every 20 us while threads block in calls.
//   - 5%: change threads, a good half of it to let Go deliver 50 signals.
//   - 4%: start the Go runtime; 3%: initialize packages.
//   - The remainder is spread thin: command line, starting the command.
//
// Without the kernel layer, the longest path through such a run takes 14 ms where bwrap
// takes 5: 3 until main runs, 1.5 for flags and redaction, 2 for the spool, beside which
// it finds out what the host allows, 2 for the session and the start of the guard,
// 2 until the guard is up, 1.5 for the command, 1 for counters and directories, 1 for
// the documents and 1 each to pack the bundle and to sync it. The smallest Go program
// that starts a command takes 2, and two of them, as runner and guard are, 3.5.
//
// The first run on a host takes three times as much, because the kernel verifies the
// programs.
package runner
