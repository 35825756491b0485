// Package runner runs a command in its own cgroup and records the run.
//
// A [Spec] is plain data that validates anywhere. [Run] starts it, forwards
// stdio and signals, enforces its limits, and leaves the layers and documents
// of a bundle with a [Recorder]. The package never exits the process and never
// writes to its standard streams except for the child's own bytes.
//
// # Parts
//
// A run is made of three parts, a contract and a workspace. newRun makes them, each with all it needs: what an earlier
// part offers, as interfaces of a few methods. Nothing sets a field of a part afterwards; a test holds that.
//
//   - The enclosure is what is around the command: the containment (session, limits, guard), the confinement (the
//     sandbox), and the containers that it may start.
//   - The witness is the evidence of what the command does: what the agent reports, what it asks models, and what is
//     observed of it.
//   - The command is the process with its standard streams, from its start to the end of all that it started.
//   - The contract has three moments. It is read before anything starts. Its baseline comes before the command, and
//     its checks after it, while session and observer still live.
//   - The workspace is read before the command. What the command changed in it is kept, if that is asked for.
//
// Run does the steps that steps lists, supervises the command, has the contract checked, and closes the parts,
// the last one first. A part adds its results to result.json when it is closed, and its reasons to
// observation-health.json after all parts are closed. It appends to a layer through the run's evidence.Log.
//
// To add something to a run, find its part. Give it what it needs in the constructor, as an interface if that is
// another part's. What must be done before the command starts is a line in steps: if it fails with a *runError,
// the command does not start. What a part holds is let go in its close, which is also called if it was never
// opened. If that fails, evidence is missing, and the process exits with 125.
//
// # States
//
// A run is in one [State] at a time, from StatePreparing to StateReleasing. In each of
// them SIGTERM ends it within the grace and two seconds, and so does a second SIGINT. Whoever
// waits in a state also waits for that: open in run_linux.go until the command runs,
// supervise until nothing of it is left, attended while checks run, and the caller of Run
// after it. What does not end by then is abandoned: this process ends, and the guard ends
// the session.
package runner
