// Package procs has what the parts of package cgroup share: it reads what /proc says about processes, and it signals
// and waits for a set of processes that fork and exit meanwhile. A set is a function that lists its live processes.
package procs

import (
	"errors"
	"time"
)

// What package cgroup's errors of the same names are.
var (
	ErrNotSupported = errors.New("not supported on this host")
	ErrInUse        = errors.New("run id is in use by a live runner")
	ErrNotMember    = errors.New("not a process of this run")
)

// LockWait is how long a guard may still be at work for a run that is over, and
// LockLook how often a new run with the same id looks whether it is.
const (
	LockWait = 500 * time.Millisecond
	LockLook = 10 * time.Millisecond
)
