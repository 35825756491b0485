// Package helper is the processes that package cgroup starts of the program's own
// binary, and the waiting for what they and the runs leave behind:
//
//   - the guard ends a session when the runner is gone (guard, inheritance, terminal);
//   - the joiner puts itself into cgroups and becomes the command (join);
//   - the leader leads a terminal's session and is the command's parent (leader);
//   - the reaper, which is a goroutine, waits for orphans that come to the runner.
//
// A guard has nothing to do in most runs, and a start of Go takes 3 to 5 ms of CPU time. So
// its process begins as a waiter: a list of package steps, which waits until the runner is gone.
// Then the same process goes on as the guard. Like a guard, the waiter is not dumpable, ignores signals
// and holds the descriptors; the guard finds in the pipe what the runner wrote. The list kills
// the session before Go starts, because Go cannot start where no more processes are allowed. Release
// kills the waiter.
//
// The guard starts as itself where there is no cgroup.kill; on a terminal, which has to be
// restored at once; and where steps.Refused. A fork of the runner that waits would save less:
// afterwards the runner takes a page fault for each page that it writes, and the fork has the
// runner's command line.
//
// Enter is the main function of the processes. It runs as early as a program's
// initialisation allows: most of a program's start is not theirs to wait for. A
// program that has not called it cannot start any: see ErrNone.
package helper

import "errors"

// ErrNone is what package cgroup's ErrNoHelper is.
var ErrNone = errors.New(
	`this program cannot start the helper process that this needs: import _ "github.com/assay-run/assay-run/cgroup/reexec" in its main package`)
