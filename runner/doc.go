// Package runner runs a command in its own cgroup and records the run.
//
// A [Spec] is plain data that validates anywhere. [Run] starts it, forwards
// stdio and signals, enforces its limits, and leaves the layers and documents
// of a bundle with a [Recorder]. The package never exits the process and never
// writes to its standard streams except for the child's own bytes.
//
// # Parts
//
// A run is made of parts of one shape (type part, in run_linux.go): the
// contract, the containment, the agent's side, the observation, the standard
// streams, the command. newRun makes them. Where a part needs another that is made
// after it, newRun sets a function of the one when both are made.
// Run opens them in order, supervises the command, evaluates the contract, and closes
// them in reverse order. A part adds its results to result.json when it is closed, and its reasons to
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
// # States
//
// A run is in one [State] at a time, from StatePreparing to StateReleasing. In each of
// them SIGTERM ends it within the grace and two seconds, and so does a second SIGINT. Whoever
// waits in a state also waits for that: open in ending_linux.go until the command runs,
// supervise until nothing of it is left, attended while checks run. What does not end by then
// is abandoned: this process ends, and the guard ends the session.
package runner
