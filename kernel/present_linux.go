//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// enroll makes the processes that are in the session already its members, so
// that their exits are told from those of threads, and returns them. It is called
// when forks are being seen.
func (l *loaded) enroll(session string) (found []Present, err error) {
	err = filepath.WalkDir(session, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		list, _ := os.ReadFile(path) // a threaded cgroup has none: its processes are in the one above
		for _, pid := range strings.Fields(string(list)) {
			n, err := strconv.ParseUint(pid, 10, 32)
			if err != nil || n == 0 {
				continue
			}
			if err := l.slot.enroll(uint32(n)); err != nil {
				return fmt.Errorf("enroll process %d: %w", n, err)
			}
			p := Present{PID: uint32(n)}
			var st unix.Stat_t
			if unix.Stat(filepath.Dir(path), &st) == nil {
				p.CgroupID = st.Ino
			}
			found = append(found, p)
		}
		return nil
	})
	return found, err
}

// HostPIDs tells whether this process is in the first PID namespace, whose inode
// number is fixed: PROC_PID_INIT_INO in include/linux/proc_ns.h.
func HostPIDs() bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/pid", &st) == nil && st.Ino == 0xEFFFFFFC
}

// usedBefore tells whether anything has ever run in a cgroup: the CPU time of all
// that was in it or below, as far as the kernel tells that.
func usedBefore(session string) bool {
	stat, err := os.ReadFile(filepath.Join(session, "cpu.stat"))
	return err != nil || !slices.Contains(strings.Split(string(stat), "\n"), "usage_usec 0")
}

// Present are the processes that were in the cgroup already when Open began to see it,
// as /proc describes them now: it takes some time for each. One that has ended since
// has nothing but its numbers.
func (o *Observer) Present() []Present {
	list := slices.Clone(o.loaded.present)
	for i := range list {
		list[i].describe()
	}
	return list
}

func (p *Present) describe() {
	dir := "/proc/" + strconv.FormatUint(uint64(p.PID), 10)
	p.Exe, _ = os.Readlink(dir + "/exe")
	p.Cwd, _ = os.Readlink(dir + "/cwd")
	var ns unix.Stat_t
	if unix.Stat(dir+"/ns/mnt", &ns) == nil {
		p.MountNS = uint32(ns.Ino)
	}
	if line, _ := os.ReadFile(dir + "/cmdline"); len(line) > 0 {
		for arg := range bytes.SplitSeq(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
			p.Argv = append(p.Argv, string(arg))
		}
	}
	// The name in parentheses may contain anything: proc_pid_stat(5).
	stat, _ := os.ReadFile(dir + "/stat")
	if f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(f) > 1 {
		ppid, _ := strconv.ParseUint(string(f[1]), 10, 32)
		p.PPID = uint32(ppid)
	}
}
