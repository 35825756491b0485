// Package runner runs a command in its own cgroup and records the run.
//
// A [Spec] is plain data that validates anywhere. [Run] starts it, forwards
// stdio and signals, enforces its limits, and leaves the layers and documents
// of a bundle with a [Recorder]. The package never exits the process and never
// writes to its standard streams except for the child's own bytes.
package runner
