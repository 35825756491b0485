package proctree

import (
	"bytes"
	"hash/fnv"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// The environment marker of a run can be cleared, and a daemon that has left
// its session and lost its parent has nothing else to know it by once the
// runner is gone too. So a start also sets the soft limit on file
// locks (RLIMIT_LOCKS), which Linux has not looked at since 2.4 (getrlimit(2)),
// to a number made of the run id, wide enough that no two runs share it. All
// descendants inherit it over fork, exec and setsid, and /proc/<pid>/limits
// shows it.

// limitMark is the soft limit that marks a run, 0 if there is no room for it.
func limitMark(runID string) uint64 {
	var now unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &now); err != nil || now.Max != unix.RLIM_INFINITY {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(runID))
	return h.Sum64()>>2 | 1<<61 // never small, never infinity
}

// withMark runs f, which forks, with the mark set. The caller makes sure that nothing else in this package forks
// meanwhile.
func withMark(mark uint64, f func() error) error {
	var old unix.Rlimit
	if mark == 0 || unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &old) != nil {
		return f()
	}
	if unix.Prlimit(0, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: mark, Max: old.Max}, nil) == nil {
		defer func() { _ = unix.Prlimit(0, unix.RLIMIT_LOCKS, &old, nil) }()
	}
	return f()
}

// hasMark reports whether a process's limits have the mark (proc_pid_limits(5)).
func hasMark(pid int, mark uint64) bool {
	if mark == 0 {
		return false
	}
	b, err := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return false
	}
	_, line, _ := bytes.Cut(b, []byte("Max file locks"))
	f := bytes.Fields(line)
	return len(f) > 0 && string(f[0]) == strconv.FormatUint(mark, 10)
}
