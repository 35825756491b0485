package cgroup

import (
	"bytes"
	"os"
	"strconv"
)

// stat is what proc_pid_stat(5) says of a process.
type stat struct {
	pid, ppid, sid int
	state          byte
	start          uint64 // clock ticks since boot
}

// stats reads the state of every process.
func stats() map[int]stat {
	all := map[int]stat{}
	d, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if st, ok := readStat(pid); ok {
				all[pid] = st
			}
		}
	}
	return all
}

func readStat(pid int) (stat, bool) {
	b, err := readFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The name is in parentheses and may hold any byte.
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 20 {
		return stat{}, false
	}
	ppid, _ := strconv.Atoi(string(f[1]))
	sid, _ := strconv.Atoi(string(f[3]))
	start, _ := strconv.ParseUint(string(f[19]), 10, 64)
	return stat{pid: pid, ppid: ppid, sid: sid, state: f[0][0], start: start}, true
}
