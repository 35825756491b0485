package dirs

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// on returns the session's path of a controller's file, empty where there is none.
func (s *Session) on(file string) string {
	controller, _, _ := strings.Cut(file, ".")
	for _, d := range s.dirs {
		if path := filepath.Join(d.path, file); d.has(controller) && exists(path) {
			return path
		}
	}
	return ""
}

// Usage tells what the session consumed so far; read it before Remove.
func (s *Session) Usage() Usage {
	var u Usage
	if s.dirs[0].v2 {
		stat := filepath.Join(s.dirs[0].path, "cpu.stat")
		u.CPUUserNS, u.CPUSystemNS = times(keyed(stat, "user_usec")), times(keyed(stat, "system_usec"))
	} else {
		u.CPUUserNS, u.CPUSystemNS = ptr(number(s.on("cpuacct.usage_user"))), ptr(number(s.on("cpuacct.usage_sys")))
	}
	u.MemoryPeakBytes = ptr(number(s.on("memory.peak")))
	if u.MemoryPeakBytes == nil {
		u.MemoryPeakBytes = ptr(number(s.on("memory.max_usage_in_bytes")))
	}
	for _, g := range s.groupList() {
		g.left()
	}
	if peak, ok := number(s.on("pids.peak")); ok {
		if peak > s.pidsFloor.Load() {
			u.PidsPeak = &peak
		}
	}
	if path := s.on("io.stat"); path != "" {
		u.IOReadBytes, u.IOWriteBytes = ioStat(path)
	} else if path := s.on("blkio.throttle.io_service_bytes_recursive"); path != "" {
		u.IOReadBytes, u.IOWriteBytes = blkio(path)
	}
	return u
}

// Events tells how often limits struck so far; read it before Remove.
func (s *Session) Events() Events {
	var e Events
	for _, d := range s.dirs {
		if d.v2 {
			// memory.events counts for the whole subtree; the controllers are
			// not handed on below the session, so pids.events does as well.
			if n, ok := keyed(filepath.Join(d.path, "memory.events"), "oom_kill"); ok {
				e.OOMKills = &n
			}
			if n, ok := keyed(filepath.Join(d.path, "pids.events"), "max"); ok {
				e.PidsMaxHits = &n
			}
			continue
		}
		// v1 counts in the cgroup of the process concerned.
		if d.has("memory") {
			e.OOMKills = plusEach(e.OOMKills, d.path, "memory.oom_control", "oom_kill")
		}
		if d.has("pids") {
			e.PidsMaxHits = plusEach(e.PidsMaxHits, d.path, "pids.events", "max")
		}
	}
	return e
}

// plusEach adds a value of a file of each cgroup from path on, nil while there is none.
func plusEach(sum *int64, path, file, key string) *int64 {
	for _, at := range nested(path) {
		if n, ok := keyed(filepath.Join(at, file), key); ok {
			sum = plus(sum, n)
		}
	}
	return sum
}

// left waits until a launcher that has done its work is out of the group.
func (g *Group) left() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l != nil && g.l.cmd == nil {
		<-g.l.left
	}
}

// noteOurTasks is called when tasks of ours have just left the session: up to
// this peak they may have been counted.
func (s *Session) noteOurTasks() {
	if peak, ok := number(s.on("pids.peak")); ok {
		for old := s.pidsFloor.Load(); peak > old && !s.pidsFloor.CompareAndSwap(old, peak); {
			old = s.pidsFloor.Load()
		}
	}
}

// ioStat sums the lines ("8:0 rbytes=4096 wbytes=0 ...") of io.stat. A file without
// one is nil: the kernel accounted no device, as for a file system that has none.
func ioStat(path string) (read, written *int64) {
	b, err := procs.ReadFile(path)
	if err != nil {
		return nil, nil
	}
	for _, f := range strings.Fields(string(b)) {
		k, v, _ := strings.Cut(f, "=")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "rbytes":
			read = plus(read, n)
		case "wbytes":
			written = plus(written, n)
		}
	}
	return read, written
}

// blkio sums the Read and Write lines ("8:0 Read 4096") of a v1 file, as ioStat does.
func blkio(path string) (read, written *int64) {
	b, err := procs.ReadFile(path)
	if err != nil {
		return nil, nil
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseInt(f[2], 10, 64)
		switch f[1] {
		case "Read":
			read = plus(read, n)
		case "Write":
			written = plus(written, n)
		}
	}
	return read, written
}

func ptr(n int64, ok bool) *int64 {
	if !ok {
		return nil
	}
	return &n
}

func times(usec int64, ok bool) *int64 { return ptr(usec*1000, ok) }

func plus(p *int64, n int64) *int64 {
	if p != nil {
		n += *p
	}
	return &n
}
