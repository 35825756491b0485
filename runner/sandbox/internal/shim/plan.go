// Package shim is the process that stands between the runner and a sandboxed
// command. The runner compiles a [Plan] into a list of system calls (see package
// cgroup/steps) and starts a re-exec of its own binary with it; that process builds the layers, tells
// how each went, and starts the command.
//
// With a PID namespace it stays as its init: it reaps, tells the runner of
// every change of the command's state, dials ports inside for the runner, and
// ends everything when the runner is gone. Without, it becomes the command.
//
// It decides nothing: what to restrict, and whether a layer may be missing, is
// in the plan.
package shim

// Layers, as reports name them.
const (
	Privileges = "privileges" // no_new_privs, capabilities, user
	Landlock   = "landlock"
	Seccomp    = "seccomp"
	Namespaces = "namespaces" // user, mount, PID, IPC and UTS
	Files      = "files"      // what the mount namespace shows, and how
	Network    = "network"
)

// Plan is everything that the shim does.
type Plan struct {
	// Path, Args and Dir are the command's; its environment is the shim's own.
	Path string
	Args []string
	Dir  string
	// Degrade goes on without a layer that fails, and tells so.
	Degrade bool
	// Probe builds the layers and starts nothing.
	Probe bool
	// Clone are the clone flags of the child that continues, for a caller that cannot start the shim with
	// them.
	Clone uintptr
	// Init is set where the shim is process 1 of a PID namespace.
	Init bool
	// Mounts is nil where there is no mount namespace.
	Mounts *Mounts
	// Loopback brings the loopback device of the network namespace up.
	Loopback bool
	// Ports are where the shim listens, inside, on behalf of the runner;
	// 0 means not at all.
	Ports []int
	// UID and GID are nil where the user stays.
	UID, GID *int
	Groups   []int
	// Needs are looked at as that user, once all else is in place.
	Needs []Need
	// OwnTerminal is set where the terminal, if any, was made for the command.
	OwnTerminal bool
	// Landlock is nil where the layer is not to be used.
	Landlock *Ruleset
	// Filter is an assembled seccomp program; empty means none.
	Filter []Instruction
	// EndWithCommand ends the namespace with the command.
	EndWithCommand bool
	// Waits has the command start only when the runner says so: see Conn.Go.
	Waits bool
	// Keep is the number of descriptors from 3 on that the command gets.
	Keep int
	// KeepPrivileges leaves the command what its user may do; a filter takes from it
	// only what the kernel insists on: see no_new_privs in seccomp(2).
	KeepPrivileges bool
	// Fail names an operation that must fail. Tests set it.
	Fail string
	// Without are layers to omit, also from the report. Tests set it.
	Without []string
}

// Mounts says how the mount namespace differs from the host's. Paths are
// absolute and without symbolic links.
type Mounts struct {
	// Writable are the trees and files that stay writable; all else is read-only.
	// Everything is as it was where All is set.
	Writable []string
	// All leaves everything as writable as it was.
	All bool
	// Pinned are directories that cannot be renamed or removed: what is read-only
	// or hidden below them would go with them.
	Pinned []string
	// ReadOnly are exceptions below Writable.
	ReadOnly []string
	// Hidden cannot be read, entered, or connected to.
	Hidden []string
	// Sockets are hidden too, where they still exist.
	Sockets []string
	// Private are directories that are empty but for what Shown puts there.
	Private []string
	// Shown are exceptions below Hidden and Private.
	Shown []Shown
	// Temporary are directories that get a file system in memory.
	Temporary []string
	// Moved are directories that have another path.
	Moved []Moved
	// Shm makes /dev/shm writable.
	Shm bool
	// Proc mounts a /proc of the PID namespace.
	Proc bool
	// Devices replaces /dev by the few devices that every program may use.
	Devices bool
}

// Shown is a path that is seen although what it is below is not.
type Shown struct {
	Path     string
	Writable bool
}

// Moved is a directory that is seen at To. That exists, or is below one of Mounts.Temporary.
type Moved struct{ From, To string }

// Need is a file that a command must be able to use, with a mode of access(2).
type Need struct {
	Path string
	Mode uint32
}

// Unusable is a Need that the command's user has no way to.
type Unusable struct {
	Path  string
	Errno int
}

// Ruleset is a Landlock ruleset. The bits are those of linux/landlock.h.
type Ruleset struct {
	FS, Net, Scoped uint64
	// Log are the flags of landlock_restrict_self(2) that choose what the host's audit is
	// told of (ABI 7); zero is the kernel's default.
	Log   int
	Paths []PathRule
	Ports []PortRule
}

// PathRule allows Access below Path. One that does not exist is left out where
// Optional is set.
type PathRule struct {
	Path     string
	Access   uint64
	Optional bool
}

// PortRule allows Access to a TCP port.
type PortRule struct {
	Port   uint16
	Access uint64
}

// Instruction is struct sock_filter of linux/filter.h.
type Instruction struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// States of a layer.
const (
	Enforced    = "enforced"
	Degraded    = "degraded"
	Unavailable = "unavailable"
)

// Report is how a layer went.
type Report struct {
	Layer  string `json:"layer"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Errno is the kernel's answer, 0 without one.
	Errno int `json:"errno,omitempty"`
}
