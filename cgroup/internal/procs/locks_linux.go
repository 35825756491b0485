package procs

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
)

// Lockers are the processes that hold a lock of flock(2), from proc_locks(5).
func Lockers() ([]int, error) {
	b, err := ReadFile("/proc/locks")
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 5 || string(f[1]) != "FLOCK" {
			continue // of another kind, or "->": one that waits
		}
		pid, err := strconv.Atoi(string(f[4]))
		if err != nil {
			return nil, errors.New("/proc/locks: not a process id: " + string(f[4]))
		}
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}
