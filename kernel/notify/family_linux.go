//go:build amd64 || arm64

package notify

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// adopt makes p a process of the run, and opens the descriptors that it lacks. It calls
// same last, to confirm that p.pid has been the same process all the time. p belongs to
// adopt.
func (o *Observer) adopt(p *process, same func() bool) *process {
	t := o.table
	p.reads = &o.reads
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
	parent := o.ancestor(p, maxAncestors)
	if parent == nil && t.first {
		return p // its parent is not known: the layer says that it joined
	}
	e := o.event(kernel.KindFork, kernel.HookFork, p, p.pid)
	e.PID, e.TID, e.Start = 0, 0, 0
	if parent != nil {
		if t.roots == 0 {
			p.atRoot = parent.atRoot // nobody has changed a root yet
		}
		e.PID, e.TID, e.Start, e.CgroupID = parent.pid, parent.pid, parent.start, parent.cgroup
	}
	e.ChildPID, e.ChildTID, e.ChildStart, e.ChildCgroupID = p.pid, p.pid, p.start, p.cgroup
	t.first = true
	o.emit(e)
	return p
}

// maxAncestors bounds how many processes without a call there may be between a process
// that makes one and an ancestor that is known.
const maxAncestors = 64

// ancestor is the parent of p. If the parent has made no call yet, ancestor adopts it,
// provided that it descends from the run's first process.
func (o *Observer) ancestor(p *process, left int) *process {
	if q := o.table.byPID[p.ppid]; q != nil && q.holds(p.ppid) {
		return q
	}
	if left == 0 || !o.table.first || !o.descends(p.ppid, left) {
		return nil
	}
	dir, err := openProc(p.ppid)
	if err != nil {
		return nil
	}
	_, above, _ := status(dir, o.table.buf)
	q := unopened(p.ppid, above)
	q.dir = dir
	return o.adopt(q, func() bool { _, now, _ := status(p.dir, o.table.buf); return now == p.ppid })
}

// descends reports whether pid, or one of its nearest ancestors, is known.
func (o *Observer) descends(pid uint32, left int) bool {
	for ; left > 0 && pid > 1 && pid != uint32(unix.Getpid()); left-- {
		if o.known(pid) {
			return true
		}
		dir, err := openProc(pid)
		if err != nil {
			return false
		}
		_, pid, _ = status(dir, o.table.buf)
		unix.Close(dir)
	}
	return false
}

// children adopts the children of p that are not known yet. p is about to end, and then
// nothing would show whose children they were.
func (o *Observer) children(p *process, tid uint32) {
	for _, thread := range []uint32{p.pid, tid} {
		name := "task/" + strconv.FormatUint(uint64(thread), 10) + "/children"
		for f := range bytes.FieldsSeq(bytes.Clone(readAt(p.dir, name, o.table.buf))) {
			n, err := strconv.ParseUint(string(f), 10, 32)
			pid := uint32(n)
			if err != nil || o.known(pid) {
				continue
			}
			dir, err := openProc(pid)
			if err != nil {
				continue
			}
			child := unopened(pid, p.pid)
			child.dir = dir
			o.adopt(child, func() bool { _, parent, _ := status(dir, o.table.buf); return parent == p.pid })
		}
		if thread == tid {
			break
		}
	}
}
