//go:build amd64 || arm64

package notify

import (
	"maps"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
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
	atRoot     uint64 // table.roots when its root directory was found to be "/"
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

// exists reads the result of a call that would send signal 0: whether the task exists.
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
	pending     map[*process]bool   // the processes with an execution to settle
	first       bool                // the run's first process is known
	buf         []byte
}

func newTable() (*table, error) {
	ends, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &table{
		byPID: map[uint32]*process{}, threads: map[uint32]*process{}, changing: map[uint32]*process{}, pending: map[*process]bool{},
		ends: ends, buf: make([]byte, 64<<10),
	}, nil
}

// of finds the process of the task tid, which waits in the notification id. It returns nil
// if the task was killed before its process was known.
func (o *Observer) of(tid uint32, id uint64) *process {
	t := o.table
	if p := t.threads[tid]; p != nil {
		if p.holds(tid) {
			return p
		}
		delete(t.threads, tid)
	}
	found := t.owner(tid)
	if found == nil {
		return nil
	}
	pid := found.pid
	p := t.byPID[pid]
	if p != nil && !p.holds(pid) {
		o.ended(p)
		p = nil
	}
	if p != nil {
		found.close()
		if !o.waits(id) {
			return nil
		}
		t.forgetThreads()
		t.threads[tid] = p
		if tid != pid {
			e := o.event(kernel.KindFork, kernel.HookFork, p, p.pid)
			e.ChildPID, e.ChildTID, e.ChildStart, e.Thread = p.pid, tid, p.start, true
			o.emit(e)
		}
		return p
	}
	p = o.adopt(found, func() bool { return o.waits(id) })
	if p != nil {
		t.threads[tid] = p
	}
	return p
}

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

// open opens the pidfd of p and its directory in /proc, and looks up its cgroup, unless
// that is done.
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

// known reports whether the table has the process that pid names now.
func (o *Observer) known(pid uint32) bool {
	p := o.table.byPID[pid]
	return p != nil && p.holds(pid)
}

// ended reports the end of p, and forgets it.
func (o *Observer) ended(p *process) {
	t := o.table
	if t.byPID[p.pid] != p {
		return
	}
	o.abandon(p)
	delete(t.byPID, p.pid)
	of := func(_ uint32, q *process) bool { return q == p }
	maps.DeleteFunc(t.threads, of)
	maps.DeleteFunc(t.changing, of)
	e := o.event(kernel.KindExit, kernel.HookExit, p, p.pid)
	e.Attempted, e.NoResult, e.Claimed = false, false, false
	switch status, known := exitStatus(p, t.buf); {
	case known:
		e.ExitCode, e.Signal, e.Core = int(status>>8&0xff), int(status&0x7f), status&0x80 != 0
	case p.exiting:
		e.ExitCode, e.Claimed = p.code, true
	default:
		e.Attempted = true
	}
	o.emit(e)
	p.close()
}

// look finds the processes that have ended: their pidfds are readable. Read calls it.
func (o *Observer) look() {
	var events [64]unix.EpollEvent
	for {
		// It does not wait, so the Go runtime need not know of it.
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(o.table.ends), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), 0, 0, 0)
		if errno != 0 || n == 0 {
			return
		}
		o.mu.Lock()
		for _, ev := range events[:n] {
			if p := o.table.byPID[uint32(ev.Fd)]; p != nil && readable(p.pidfd) {
				o.ended(p)
			}
		}
		o.mu.Unlock()
	}
}
