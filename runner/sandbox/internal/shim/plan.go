// Package shim is the process between the runner and a sandboxed command. The runner compiles a [Plan] into a list of
// system calls (see package cgroup/steps) and starts a re-exec of its own binary with it. That process builds the
// layers, reports the result of each, and starts the command.
//
// With a PID namespace it stays as the namespace's init: it reaps, reports every change of the command's state to the
// runner, dials ports inside for the runner, and ends everything when the runner is gone. Without one, it becomes the
// command.
//
// It decides nothing: the plan says what to restrict, and whether a layer may be missing.
package shim

// Names of layers in reports.
const (
	Privileges = "privileges" // no_new_privs, capabilities, user
	Landlock   = "landlock"
	Seccomp    = "seccomp"
	Namespaces = "namespaces" // user, mount, PID, IPC and UTS
	Files      = "files"      // what the mount namespace shows, and how
	Network    = "network"
	Sockets    = "sockets" // unix sockets that a process outside binds
)

// Plan is what the shim does.
type Plan struct {
	// Path, Args and Dir are the command's. The command gets the shim's environment.
	Path string
	Args []string
	Dir  string
	// Degrade continues without a layer that fails, and reports it.
	Degrade bool
	// Probe builds the layers and starts nothing.
	Probe bool
	// Clone are clone flags for a child that continues the list, for a caller that cannot start the shim with them.
	Clone uintptr
	// Init means that the shim is process 1 of a PID namespace.
	Init bool
	// Mounts is nil without a mount namespace.
	Mounts *Mounts
	// Loopback brings up the loopback device of the network namespace.
	Loopback bool
	// Ports are the ports inside where the shim listens for the runner; 0 means none.
	Ports []int
	// UID and GID are the command's user; nil does not change it.
	UID, GID *int
	Groups   []int
	// Needs are checked as that user, once everything else is done.
	Needs []Need
	// OwnTerminal means that the terminal, if any, was made for the command.
	OwnTerminal bool
	// Landlock is nil if the layer is not used.
	Landlock *Ruleset
	// Filter is an assembled seccomp program; empty means none.
	Filter []Instruction
	// Asks is an assembled seccomp program that asks the runner about some calls; empty means none. The command starts
	// without it if the kernel refuses it, unless MustAsk is set.
	Asks    []Instruction
	MustAsk bool
	// EndWithCommand ends the namespace when the command ends.
	EndWithCommand bool
	// Waits starts the command only when the runner says so: see Conn.Go.
	Waits bool
	// Keep is the number of descriptors from 3 on that the command inherits.
	Keep int
	// KeepPrivileges keeps the privileges of the command's user. A filter only takes what the kernel requires: see
	// no_new_privs in seccomp(2).
	KeepPrivileges bool
	// Fail names an operation that must fail, for tests.
	Fail string
	// Without lists layers to skip, also in the report, for tests.
	Without []string
}

// Mounts describes how the mount namespace differs from the host's.
type Mounts struct {
	// All leaves everything as writable as it is. Otherwise everything but Places is read-only.
	All bool
	// Places are where something is mounted, each before those below it.
	Places []Place
	// Proc mounts the PID namespace's /proc.
	Proc bool
	// Devices replaces /dev by the few devices that every program may use.
	Devices bool
}

// Place is a path to which something else applies than to the directory that contains it. The path is absolute and
// without symbolic links.
type Place struct {
	Path string
	As   State
	// From is the path of the content, for States Writable, Shown, Joined and Linked; empty: Path itself. For State
	// Layered, it is the directory of the layer.
	From string
	// Flat means that nothing is mounted below it. Then a mount of it costs the same however many there are.
	Flat bool
}

// State is what applies to a Place.
type State int

// States of places.
const (
	Writable  State = iota // it is as it was, and can be written
	Shown                  // it can be read, although what contains it is hidden
	Pinned                 // a directory that cannot be renamed or removed, if it exists: it contains what is read-only
	ReadOnly               // it is below what is writable, and can only be read, if it exists
	Hidden                 // it cannot be read, entered, or connected to
	Socket                 // the same, if it still exists
	Private                // a directory that is empty, except for the places below it
	Temporary              // the same, and it can be written
	Layered                // it can be written, and what is written goes to a layer; see LayerDirs
	Joined                 // a directory that also has what is in From, and can only be read
	Linked                 // a file over which there is a symbolic link, From, if the file still exists
)

// LayerDirs are the directories of a layer: what was written, and what overlayfs needs for its work.
var LayerDirs = []string{"upper", "work"}

// Need is a file that the command must be able to use, with a mode of access(2).
type Need struct {
	Path string
	Mode uint32
}

// Unusable is a Need that the command's user cannot use.
type Unusable struct {
	Path  string
	Errno int
}

// Ruleset is a Landlock ruleset. The bits are defined in linux/landlock.h.
type Ruleset struct {
	FS, Net, Scoped uint64
	// Log are the flags of landlock_restrict_self(2) for the host's audit (ABI 7); zero is the kernel's default.
	Log   int
	Paths []PathRule
	Ports []PortRule
}

// PathRule allows Access below Path. With Optional, a path that does not exist is skipped.
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

// Report is the result of a layer.
type Report struct {
	Layer  string `json:"layer"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Errno is the kernel's error, 0 without one.
	Errno int `json:"errno,omitempty"`
}
