//go:build amd64 || arm64

package notify

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// process is one process of the run, from its first notification to its end. Its
// descriptors stay with the process when its pid is used again.
type process struct {
	pid, ppid uint32
	start     uint64 // nanoseconds of CLOCK_BOOTTIME, rounded to clock ticks
	cgroup    uint64 // the id of its cgroup2 directory; 0 is unknown
	pidfd     int
	dir       int    // /proc/PID
	mem       int    // /proc/PID/mem; -1 if it cannot be opened
	atRoot    uint64 // table.roots when its root directory was found to be "/"
	exec      *execution
	reads     *reads
	silent    bool // a read of its memory got stuck
	exiting   bool // it called exit_group with code
	code      int
}

// holds reports whether tid is the id of p or of one of its threads. As long as p exists,
// no other process has its pid.
func (p *process) holds(tid uint32) bool {
	if !exists(unix.RawSyscall6(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(p.pidfd), 0, 0, 0, 0, 0)) {
		return false
	}
	return tid == p.pid || exists(unix.RawSyscall6(unix.SYS_TGKILL, uintptr(p.pid), uintptr(tid), 0, 0, 0, 0))
}

// exists reports whether the task exists, by the result of a call that would send signal 0.
func exists(_, _ uintptr, errno unix.Errno) bool { return errno == 0 || errno == unix.EPERM }

func (p *process) close() {
	for _, fd := range []int{p.pidfd, p.dir, p.mem} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// table is the processes of the run. The listener's thread and Read share it under
// the observer's mutex.
type table struct {
	byPID   map[uint32]*process
	threads map[uint32]*process // by tid, of the threads that made a call
	// manyThreads is how many threads are kept before those that ended are dropped.
	manyThreads int
	ends        int                 // an epoll of their pidfds
	roots       uint64              // counts the calls that may change a root
	changing    map[uint32]*process // by tid, of the threads that may be in such a call
	first       bool                // the run's first process is known
	buf         []byte
}

func newTable() (*table, error) {
	ends, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &table{
		byPID: map[uint32]*process{}, threads: map[uint32]*process{}, changing: map[uint32]*process{},
		ends: ends, buf: make([]byte, 64<<10),
	}, nil
}

// renew gives up the memory that a read which got stuck may still write to.
func (t *table) renew() { t.buf = make([]byte, len(t.buf)) }

// unopened is a process without descriptors.
func unopened(pid, ppid uint32) *process {
	return &process{pid: pid, ppid: ppid, pidfd: -1, dir: -1, mem: -1, atRoot: ^uint64(0)}
}

// owner is the process of the task that has this tid now, or nil if there is no such
// task. The process has no descriptors yet, or only a pidfd.
func (t *table) owner(tid uint32) *process {
	if fd, err := unix.PidfdOpen(int(tid), 0); err == nil { // it leads its process
		if i, ok := info(fd, pidfdInfoPID|pidfdInfoCgroup); ok {
			p := unopened(i.tgid, i.ppid)
			p.pidfd, p.cgroup = fd, i.cgroup
			return p
		}
		unix.Close(fd)
	} else if fd, err := unix.PidfdOpen(int(tid), unix.PIDFD_THREAD); err == nil {
		i, ok := info(fd, pidfdInfoPID)
		unix.Close(fd)
		if ok {
			return unopened(i.tgid, i.ppid)
		}
	}
	dir, err := openProc(tid)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	pid, ppid, _ := status(dir, t.buf)
	if pid == 0 {
		return nil
	}
	return unopened(pid, ppid)
}

// forgetThreads drops the threads that ended, if many threads are kept.
func (t *table) forgetThreads() {
	if len(t.threads) < t.manyThreads {
		return
	}
	for tid, p := range t.threads {
		if !p.holds(tid) {
			delete(t.threads, tid)
		}
	}
	t.manyThreads = max(minManyThreads, 2*len(t.threads))
}

const minManyThreads = 4096

// open opens the pidfd of p and its directory in /proc, and looks up its cgroup, unless that is done. It
// reports whether it could.
func (p *process) open() bool {
	var err error
	if p.pidfd < 0 {
		if p.pidfd, err = unix.PidfdOpen(int(p.pid), 0); err != nil {
			return false
		}
	}
	if p.cgroup == 0 {
		p.cgroup = cgroupOf(p.pidfd)
	}
	if p.dir < 0 {
		p.dir, err = openProc(p.pid)
	}
	return err == nil
}

// openMemory opens the memory of the program that p runs now.
func (p *process) openMemory() {
	if p.mem >= 0 {
		unix.Close(p.mem)
	}
	p.silent = false
	var err error
	if p.mem, err = unix.Openat(p.dir, "mem", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		p.mem = -1
	}
}

// vector reads an argv.
func (p *process) vector(at uint64, compat bool) (argv []string, cut bool) {
	argv = []string{}
	if at == 0 {
		return argv, false
	}
	word := 8
	if compat {
		word = 4
	}
	var block [32 * 8]byte
	var text []byte
	for {
		b := block[:32*word]
		if n := int(pageSize - at%pageSize); n >= word && n < len(b) {
			b = b[:n/word*word]
		}
		if !p.read(b, at) {
			return argv, true
		}
		for ; len(b) > 0; b, at = b[word:], at+uint64(word) {
			pointer := uint64(le.Uint32(b))
			if !compat {
				pointer = le.Uint64(b)
			}
			if pointer == 0 {
				return argv, false
			}
			from := len(text)
			var tooLong, ok bool
			if text, tooLong, ok = p.text(text, pointer, maxArguments-from); !ok || tooLong ||
				len(argv) >= maxArguments/8 {
				return argv, true
			}
			argv = append(argv, string(text[from:]))
		}
	}
}

// text appends the string at an address of p, without its NUL. cut reports that the
// string, with its NUL, is longer than limit bytes.
func (p *process) text(dst []byte, at uint64, limit int) (text []byte, cut, ok bool) {
	start := len(dst)
	for chunk := 256; ; chunk = pageSize {
		n := min(chunk, int(pageSize-at%pageSize), limit-(len(dst)-start))
		if n <= 0 {
			return dst, true, true
		}
		from := len(dst)
		dst = append(dst, make([]byte, n)...)
		got, err := p.memory(dst[from:], at)
		if err != nil || got <= 0 {
			return dst[:from], false, false
		}
		if end := bytes.IndexByte(dst[from:from+got], 0); end >= 0 {
			return dst[:from+end], false, true
		}
		dst = dst[:from+got]
		at += uint64(got)
	}
}

// memory reads from an address of p, as far as the kernel does at once.
func (p *process) memory(b []byte, at uint64) (int, error) {
	if p.unreadable() {
		return 0, unix.ETIMEDOUT
	}
	began := p.reads.begin()
	n, err := unix.Pread(p.mem, b, int64(at))
	p.reads.end(began)
	return n, err
}

// memoryFile reads a file in the /proc/PID of p that shows what is in its memory.
func (p *process) memoryFile(name string, buf []byte) []byte {
	if p.unreadable() {
		return nil
	}
	began := p.reads.begin()
	b := readAt(p.dir, name, buf)
	p.reads.end(began)
	return b
}

// unreadable reports whether a read of p's memory must not be tried.
func (p *process) unreadable() bool { return p.silent || p.reads.refused }

// read fills b from an address of p, and reports whether it could.
func (p *process) read(b []byte, at uint64) bool {
	for len(b) > 0 {
		n, err := p.memory(b, at)
		if err != nil || n <= 0 {
			return false
		}
		b, at = b[n:], at+uint64(n)
	}
	return true
}

// rootsChange reports whether a call that may change a root may be unfinished. Such a call
// is finished when its thread makes another call, or has ended.
func (t *table) rootsChange() bool {
	for tid, p := range t.changing {
		if p.holds(tid) {
			return true
		}
		delete(t.changing, tid)
	}
	return false
}
