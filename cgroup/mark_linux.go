package cgroup

import (
	"bytes"
	"hash/fnv"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The environment marker of a run can be cleared, and a daemon that has left
// its session and lost its parent has nothing else to know it by once the
// runner is gone too. So in mode None, Start also lowers the soft limit on
// queued signals (RLIMIT_SIGPENDING, thousands; nobody comes near it) by a
// little that depends on the run id. All descendants inherit it over fork,
// exec and setsid, and /proc/<pid>/limits shows it.

// limitMark is the soft limit that marks a run, 0 if there is no room for it.
func limitMark(runID string) uint64 {
	var now unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_SIGPENDING, nil, &now); err != nil || now.Max < 1024 {
		return 0
	}
	top := min(now.Max, 1<<20)
	h := fnv.New32a()
	_, _ = h.Write([]byte(runID))
	return top - 1 - uint64(h.Sum32())%min(4093, top/4)
}

// withMark runs f, which forks, with the mark on. The caller sees to it that
// nothing else of this package forks meanwhile.
func withMark(mark uint64, f func() error) error {
	var old unix.Rlimit
	if mark == 0 || unix.Prlimit(0, unix.RLIMIT_SIGPENDING, nil, &old) != nil {
		return f()
	}
	if unix.Prlimit(0, unix.RLIMIT_SIGPENDING, &unix.Rlimit{Cur: mark, Max: old.Max}, nil) == nil {
		defer func() { _ = unix.Prlimit(0, unix.RLIMIT_SIGPENDING, &old, nil) }()
	}
	return f()
}

// hasMark reads proc_pid_limits(5).
func hasMark(pid int, mark uint64) bool {
	if mark == 0 {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return false
	}
	_, line, _ := bytes.Cut(b, []byte("Max pending signals"))
	f := bytes.Fields(line)
	return len(f) > 0 && string(f[0]) == strconv.FormatUint(mark, 10)
}
