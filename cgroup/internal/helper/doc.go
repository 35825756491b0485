// Package helper has the processes that package cgroup starts from the program's own binary, and waits for what they
// and the runs leave behind:
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
// The guard starts without a waiter if there is no cgroup.kill, if there is a terminal, which has to be restored at
// once, and if steps.Refused. A fork of the runner that waits would save less:
// afterwards the runner takes a page fault for each page that it writes, and the fork has the
// runner's command line.
//
// Enter is the main function of the processes. It runs as early in a program's initialisation as possible, because they
// need little of it. A program that does not call it cannot start them: see ErrNone.
package helper

import "errors"

// ErrNone is what package cgroup's ErrNoHelper is.
var ErrNone = errors.New(
	`this program cannot start the helper process that this needs: import _ "github.com/assay-run/assay-run/cgroup/reexec" in its main package`)
