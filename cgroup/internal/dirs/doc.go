// Package dirs keeps the processes of a session together by cgroup
// directories: <base>/assay-run/<run id> on every hierarchy in use, or a slice of
// systemd's (see slice_linux.go), with one directory per group below it. See package
// cgroup for the kinds of hosts, for where the base is, and for what the limits mean.
//
// A Host is what this machine's hierarchies allow, found by trying. A dir is
// one directory of a session or group on one hierarchy; the first of several,
// the primary one, is cgroup2's where there is one.
package dirs

// What package cgroup's types of the same names are.
type (
	Mode       string
	Reason     struct{ Code, Message, Remedy string }
	Controller struct {
		Name      string
		Available bool
		Hierarchy string
		Reason    string
		Remedy    string
	}
	Limits struct {
		MemoryBytes int64
		Pids        int64
		CPUMilli    int64
		BestEffort  bool
		Slice       bool
		Containers  bool
	}
	LimitError struct{ Limit, Controller, Reason, Remedy string }
	Usage      struct {
		CPUUserNS       *int64
		CPUSystemNS     *int64
		MemoryPeakBytes *int64
		PidsPeak        *int64
		IOReadBytes     *int64
		IOWriteBytes    *int64
	}
	Events struct{ OOMKills, PidsMaxHits *int64 }
	Swept  struct {
		RunID  string
		Killed int
		Err    error
	}
)

const (
	Unified Mode = "unified"
	Hybrid  Mode = "hybrid"
	Legacy  Mode = "legacy"
	None    Mode = "none"
)

func (e *LimitError) Error() string { return e.Limit }
