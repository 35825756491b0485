// Package helper is the processes that package cgroup starts of the program's own
// binary, and the waiting for what they and the runs leave behind:
//
//   - the guard ends a session when the runner is gone (guard, inheritance, terminal);
//   - the joiner puts itself into cgroups and becomes the command (join);
//   - the leader leads a terminal's session and is the command's parent (leader);
//   - the reaper, which is a goroutine, waits for orphans that come to the runner.
//
// Enter is the main function of the processes. It runs as early as a program's
// initialisation allows: most of a program's start is not theirs to wait for. A
// program that has not called it cannot start any: see ErrNone.
package helper

import "errors"

// ErrNone is what package cgroup's ErrNoHelper is.
var ErrNone = errors.New(`this program cannot start the helper process that this needs: import _ "github.com/assay-run/assay-run/cgroup/reexec" in its main package`)
