package procs

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Stat is what proc_pid_stat(5) says of a process.
type Stat struct {
	PID, PPID, SID int
	State          byte
	Threads        int    // also those that outlive the first one, in whose place a zombie stands
	Start          uint64 // clock ticks since boot
	flags          uint64
}

// Dead reports whether the process has ended and waits for its parent. One whose
// first thread alone has ended is alive: it reads files and forks as before.
func (st Stat) Dead() bool { return st.State == 'X' || st.State == 'Z' && st.Threads <= 1 }

// Ending reports whether the process has ended or is exiting: it no longer runs code of its own.
func (st Stat) Ending() bool {
	const exiting = 0x4 // PF_EXITING
	return st.Dead() || st.flags&exiting != 0 && st.Threads <= 1
}

// All reads the state of every process.
func All() map[int]Stat {
	all := map[int]Stat{}
	d, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if st, ok := Read(pid); ok {
				all[pid] = st
			}
		}
	}
	return all
}

// Read reads the state of one process; false when it is gone.
func Read(pid int) (Stat, bool) {
	b, err := ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, false
	}
	// The name is in parentheses and may hold any byte.
	i := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[i+1:])
	if i < 0 || len(f) < 20 {
		return Stat{}, false
	}
	ppid, _ := strconv.Atoi(string(f[1]))
	sid, _ := strconv.Atoi(string(f[3]))
	threads, _ := strconv.Atoi(string(f[17]))
	start, _ := strconv.ParseUint(string(f[19]), 10, 64)
	flags, _ := strconv.ParseUint(string(f[6]), 10, 64)
	return Stat{PID: pid, PPID: ppid, SID: sid, State: f[0][0], Threads: threads, Start: start, flags: flags}, true
}

// ReadFile reads a file of /proc or of a cgroup whole, with half of the system
// calls that os.ReadFile makes.
func ReadFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	b := buf[:0]
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return bytes.Clone(b), &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return bytes.Clone(b), nil
		default:
			b = slices.Grow(b[:len(b)+n], 512)
		}
	}
}

// buffers are used again, since most files are short and memory that is new costs a page fault.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}
