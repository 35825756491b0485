// Package runner runs a command in its own cgroup and records the run.
//
// A [specfile.Spec] is plain data that validates anywhere. [Run] starts it, forwards stdio and signals, enforces its
// limits, and leaves the layers and documents of a bundle with a [Recorder]. The package never exits the process, and
// writes nothing but the command's own bytes to its standard streams.
//
// # Parts
//
// A run has three parts, a contract and a workspace. newRun makes them. Each gets from its constructor everything
// that it needs; what it needs of an earlier part is an interface of a few methods. No field of a part is set from
// outside later; a test checks that.
//
//   - The enclosure surrounds the command: the containment (session, limits, guard), the confinement (the sandbox), and
//     the containers that the command starts.
//   - The witness gathers the evidence: what the agent reports, what it asks models, and what the kernel observes.
//   - The command is the process with its standard streams, from its start until everything that it started has ended.
//   - The contract has three moments. It is read before anything starts. Its baseline is evaluated before the command,
//     and its checks run after it, while session and observer still exist.
//   - The workspace is scanned before and after the command. The changes are recorded if the spec asks for them.
//
// Run does the listed steps, supervises the command, has the contract checked, and closes the parts, the last one
// first. A part adds its results to result.json when it is closed, and its reasons to observation-health.json after
// all parts are closed. It appends to a layer through the run's evidence.Log.
//
// To add something to a run, find its part. Pass what it needs to the constructor, as an interface if it belongs to
// another part. What must be done before the command starts is an entry in steps: if it fails with a *runError, the
// command does not start. A part's close releases what it holds, and is also called if the part was never opened. If
// close fails, evidence is missing, and the process exits with 125.
//
// # States
//
// A run is in one [State] at a time, from StatePreparing to StateReleasing. In each state, SIGTERM or a second SIGINT
// ends it within the grace plus two seconds. The function that waits in a state also waits for these signals: open
// (run_linux.go) until the command runs, supervise until its processes have ended, attended while checks run, and the
// caller of Run after that. What does not end in time is abandoned: this process exits, and the guard ends the
// session.
package runner
