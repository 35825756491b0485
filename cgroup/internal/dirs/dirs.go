package dirs

import "fmt"

// Mode says what holds a session together on a host.
type Mode string

const (
	Unified Mode = "unified" // cgroup2 only
	Hybrid  Mode = "hybrid"  // cgroup2 for identity, v1 for limits
	Legacy  Mode = "legacy"  // v1 only
	None    Mode = "none"    // no writable cgroup: a tree of processes
)

// Reason is one reason why a host offers less, and what would fix it.
type Reason struct {
	Code    string // stable, snake case
	Message string
	Remedy  string // empty when nothing would
}

// Controller is what the host offers for one kind of resource.
type Controller struct {
	Name      string // memory, pids, cpu or io
	Available bool   // it can be limited and its use counted
	Hierarchy string // v1 or v2; empty when unavailable
	Reason    string // why it is unavailable, or under what condition it is available
	Remedy    string // empty when nothing is wrong or nothing would help
}

// Limits hold for all groups of a session together. Zero means no limit.
type Limits struct {
	// MemoryBytes is for memory and swap together.
	MemoryBytes int64
	// Pids is how many tasks (processes and threads) may exist at once.
	Pids int64
	// CPUMilli is in thousandths of one CPU: 1500 is one and a half.
	CPUMilli int64
	// BestEffort records a limit that cannot be enforced in
	// Session.Unenforced instead of failing NewSession.
	BestEffort bool
	// Slice makes the session a slice of systemd's, for container engines with the
	// systemd cgroup driver. It needs Host.Slices.
	Slice bool
	// Containers makes the session's directories for container engines on all
	// hierarchies when the session starts. Otherwise engines make them.
	Containers bool
}

// LimitError is returned by NewSession for a limit that this host cannot
// enforce. Nothing has been started or left behind.
type LimitError struct {
	Limit      string // memory, pids or cpu
	Controller string // the controller that is missing
	Reason     string
	Remedy     string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("cannot enforce the %s limit: no %s controller: %s", e.Limit, e.Controller, e.Reason)
}

// Usage is what a session's processes consumed so far, as the kernel counted
// it. A field is nil when the host does not count that.
type Usage struct {
	CPUUserNS       *int64
	CPUSystemNS     *int64
	MemoryPeakBytes *int64
	// PidsPeak is the most tasks alive at once. It is also nil when the peak
	// was so low that a task of ours, counted while it started the child,
	// may have been part of it.
	PidsPeak     *int64
	IOReadBytes  *int64
	IOWriteBytes *int64
}

// Events are the kernel's own counts of limits that were hit. A field is nil
// when the host does not count that.
type Events struct {
	OOMKills    *int64 // processes ended by the OOM killer
	PidsMaxHits *int64 // forks refused
}

// Swept is a session that a dead runner had left behind.
type Swept struct {
	RunID  string
	Killed int   // processes that were still in it
	Err    error // nil when nothing of it is left
	// Stopped is true if its guard had been stopped. The guard has now ended the session; Killed is not known.
	Stopped bool
}
