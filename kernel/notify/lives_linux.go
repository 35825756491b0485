//go:build amd64 || arm64

package notify

import (
	"bytes"
	"maps"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// lives finds the process of a task, and tells of the beginnings and ends of processes.
type lives struct {
	table      *table
	events     *events
	executions *executions
	reads      *reads
}

func newLives(table *table, events *events, executions *executions, reads *reads) *lives {
	return &lives{table: table, events: events, executions: executions, reads: reads}
}

// adopt makes p a process of the run, and opens the descriptors that it lacks. It calls
// same last, to confirm that p.pid has been the same process all the time. p belongs to
// adopt.
func (l *lives) adopt(p *process, same func() bool) *process {
	t := l.table
	p.reads = l.reads
	if !p.open() {
		p.close()
		return nil
	}
	p.start = startTime(p.dir, t.buf)
	p.openMemory()
	if !same() {
		p.close()
		return nil
	}
	_ = unix.EpollCtl(t.ends, unix.EPOLL_CTL_ADD, p.pidfd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.pid)})
	t.byPID[p.pid] = p
	parent := l.ancestor(p, maxAncestors)
	if parent == nil && t.first {
		return p // its parent is not known: the layer says that it joined
	}
	e := l.events.begin(schema.KindFork, kernel.HookFork, p, p.pid)
	e.Task = kernel.Task{CgroupID: e.Task.CgroupID}
	if parent != nil {
		if t.roots == 0 {
			p.atRoot = parent.atRoot // nobody has changed a root yet
		}
		e.Task = kernel.Task{PID: parent.pid, TID: parent.pid, PPID: parent.ppid, Start: parent.start,
			CgroupID: parent.cgroup}
	}
	e.Child = kernel.Task{PID: p.pid, TID: p.pid, PPID: e.Task.PID, Start: p.start, CgroupID: p.cgroup}
	e.PID, e.TID, e.PPID, e.CgroupID = p.pid, p.pid, e.Task.PID, p.cgroup
	t.first = true
	l.events.emit(e)
	return p
}

// ancestor is the parent of p. If the parent has made no call yet, ancestor adopts it,
// provided that it descends from the run's first process.
func (l *lives) ancestor(p *process, left int) *process {
	if q := l.table.byPID[p.ppid]; q != nil && q.holds(p.ppid) {
		return q
	}
	if left == 0 || !l.table.first || !l.descends(p.ppid, left) {
		return nil
	}
	dir, err := openProc(p.ppid)
	if err != nil {
		return nil
	}
	_, above, _ := status(dir, l.table.buf)
	q := unopened(p.ppid, above)
	q.dir = dir
	return l.adopt(q, func() bool { _, now, _ := status(p.dir, l.table.buf); return now == p.ppid })
}

// descends reports whether pid, or one of its nearest ancestors, is known.
func (l *lives) descends(pid uint32, left int) bool {
	for ; left > 0 && pid > 1 && pid != uint32(unix.Getpid()); left-- {
		if l.known(pid) {
			return true
		}
		dir, err := openProc(pid)
		if err != nil {
			return false
		}
		_, pid, _ = status(dir, l.table.buf)
		unix.Close(dir)
	}
	return false
}

// children adopts the children of p that are not known yet. p is about to end, and then
// nothing would show whose children they were.
func (l *lives) children(p *process, tid uint32) {
	for _, thread := range []uint32{p.pid, tid} {
		name := "task/" + strconv.FormatUint(uint64(thread), 10) + "/children"
		for f := range bytes.FieldsSeq(bytes.Clone(readAt(p.dir, name, l.table.buf))) {
			n, err := strconv.ParseUint(string(f), 10, 32)
			pid := uint32(n)
			if err != nil || l.known(pid) {
				continue
			}
			dir, err := openProc(pid)
			if err != nil {
				continue
			}
			child := unopened(pid, p.pid)
			child.dir = dir
			l.adopt(child, func() bool { _, parent, _ := status(dir, l.table.buf); return parent == p.pid })
		}
		if thread == tid {
			break
		}
	}
}

// of finds the process of the task tid, which waits in the notification id of a listener. It returns nil
// if the task was killed before its process was known.
func (l *lives) of(tid uint32, id uint64, from *listener) *process {
	t := l.table
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
		l.ended(p)
		p = nil
	}
	if p != nil {
		found.close()
		if !from.waits(id) {
			return nil
		}
		t.forgetThreads()
		t.threads[tid] = p
		if tid != pid {
			e := l.events.begin(schema.KindFork, kernel.HookFork, p, p.pid)
			e.Child, e.TID, e.Thread = kernel.Task{PID: p.pid, TID: tid, Start: p.start}, tid, true
			l.events.emit(e)
		}
		return p
	}
	p = l.adopt(found, func() bool { return from.waits(id) })
	if p != nil {
		t.threads[tid] = p
	}
	return p
}

// known reports whether the table has the process that pid names now.
func (l *lives) known(pid uint32) bool {
	p := l.table.byPID[pid]
	return p != nil && p.holds(pid)
}

// ended reports the end of p, and forgets it.
func (l *lives) ended(p *process) {
	t := l.table
	if t.byPID[p.pid] != p {
		return
	}
	l.executions.abandon(p)
	delete(t.byPID, p.pid)
	of := func(_ uint32, q *process) bool { return q == p }
	maps.DeleteFunc(t.threads, of)
	maps.DeleteFunc(t.changing, of)
	e := l.events.begin(schema.KindExit, kernel.HookExit, p, p.pid)
	e.Attempted, e.Claimed = false, false
	switch status, known := exitStatus(p, t.buf); {
	case known:
		if e.WaitStatus = uint32(status) & 0xff; e.WaitStatus&0x7f == 0 {
			e.WaitStatus = uint32(status) & 0xff00
		}
	case p.exiting:
		e.WaitStatus, e.Claimed = uint32(p.code&0xff)<<8, true
	default:
		e.Attempted = true
	}
	l.events.emit(e)
	p.close()
}

// look tells of the processes that have ended: their pidfds are readable. It holds mu meanwhile.
func (l *lives) look(mu sync.Locker) {
	var events [64]unix.EpollEvent
	for {
		// It does not wait, so the Go runtime need not know of it.
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.table.ends), uintptr(unsafe.Pointer(&events)),
			uintptr(len(events)), 0, 0, 0)
		if errno != 0 || n == 0 {
			return
		}
		mu.Lock()
		for _, ev := range events[:n] {
			if p := l.table.byPID[uint32(ev.Fd)]; p != nil && readable(p.pidfd) {
				l.ended(p)
			}
		}
		mu.Unlock()
	}
}

// maxAncestors bounds how many processes without a call there may be between a process
// that makes one and an ancestor that is known.
const maxAncestors = 64
