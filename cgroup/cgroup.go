package cgroup

import (
	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/helper"
	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// MarkerKey is the environment variable by which a process of a run can be
// recognised where no cgroup is writable. The runner sets it to the run id in
// the environment of what it starts in a Group.
const MarkerKey = "ASSAY_RUNNER_RUN_ID"

// The types of a host, a session and what becomes of it.
type (
	// Mode says what holds a session together on a host.
	Mode = dirs.Mode
	// Reason is one reason why a host offers less, and what would fix it.
	Reason = dirs.Reason
	// Controller is what the host offers for one kind of resource.
	Controller = dirs.Controller
	// Limits hold for all groups of a session together. Zero means no limit.
	Limits = dirs.Limits
	// LimitError is returned by NewSession for a limit that this host cannot
	// enforce. Nothing has been started or left behind.
	LimitError = dirs.LimitError
	// Usage is what a session's processes consumed so far, as the kernel counted
	// it. A field is nil when the host does not count that.
	Usage = dirs.Usage
	// Events are the kernel's own counts of limits that were hit. A field is nil
	// when the host does not count that.
	Events = dirs.Events
	// Swept is a session that a dead runner had left behind.
	Swept = dirs.Swept
)

// Modes.
const (
	Unified = dirs.Unified // cgroup2 only
	Hybrid  = dirs.Hybrid  // cgroup2 for identity, v1 for limits
	Legacy  = dirs.Legacy  // v1 only
	None    = dirs.None    // no writable cgroup: a tree of processes
)

// ErrNotSupported is wrapped by errors of operations that this host or
// operating system does not offer.
var ErrNotSupported = procs.ErrNotSupported

// ErrInUse is wrapped by NewSession's error when a live runner already has a
// session of that run id.
var ErrInUse = procs.ErrInUse

// FullError is wrapped by errors of calls that make a cgroup if the kernel makes no more: a limit of a cgroup above is
// reached, or no id is left. Its Remedy names the file to write.
type FullError = procs.FullError

// CodeFull is the code of the Reason that a hierarchy is not used because of a FullError.
const CodeFull = procs.CodeFull

// ErrNotMember is wrapped by the errors of Nested.Adopt and Group.Move for a process that is not in
// the group.
var ErrNotMember = procs.ErrNotMember

// ErrNoHelper is wrapped by the errors of Session.Guard, Group.Start and
// Group.StartJob in a program that cannot start the helper process they need: it
// has to import package cgroup/reexec.
var ErrNoHelper = helper.ErrNone

// Proc is a process of a group.
type Proc struct {
	PID  int
	Name string // the kernel's comm, at most 15 bytes; empty if it just went
}
