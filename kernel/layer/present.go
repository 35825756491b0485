package layer

import (
	"maps"
	"slices"
	"time"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// presentAfter is when the forks have been read of all processes that can be among
// Options.Present although their forks were seen.
const presentAfter = 50 * time.Millisecond

// byPID are processes by their ids.
func byPID(list []kernel.Present) map[uint32]kernel.Present {
	all := make(map[uint32]kernel.Present, len(list))
	for _, p := range list {
		all[p.PID] = p
	}
	return all
}

// expect makes sure that the process of an event is in the table, if it was in the
// cgroup before.
func (b *Builder) expect(ev *kernel.Event) {
	if len(b.present) == 0 {
		return
	}
	if ev.Kind == kernel.KindFork && !ev.Thread {
		delete(b.present, ev.ChildPID) // it came in between
	}
	if ev.Kind == kernel.KindJoinedCgroup {
		delete(b.present, ev.PID)
	}
	b.admit(ev.PID, ev.Time)
}

// admit begins an instance of a process that was in the cgroup before, after those of
// its ancestors.
func (b *Builder) admit(pid uint32, t uint64) {
	known, ok := b.present[pid]
	if !ok {
		return
	}
	delete(b.present, pid)
	b.admit(known.PPID, t)
	ev := kernel.Event{Kind: kernel.KindJoinedCgroup, Time: t, PID: pid, CgroupID: known.CgroupID}
	p := b.procs.join(&ev)
	p.exe, p.mountNS = known.Exe, known.MountNS
	b.begin(&ev, p, t < b.released)
	e := &b.out
	e.Kind, e.PPID, e.CgroupID = schema.KindJoin, known.PPID, known.CgroupID
	e.Exe, e.Cwd, e.Argv = known.Exe, known.Cwd, known.Argv
	if parent := b.procs.byPID[known.PPID]; parent != nil && !parent.exited {
		e.ParentExecID = parent.execID
	}
	b.mark(b.elsewhere(p))
	e.ContainerID = b.container(&ev, p)
	p.container = e.ContainerID
	b.stats.Added++
	b.finish(&ev, p)
}

// admitAll begins the instances of those that have done nothing yet.
func (b *Builder) admitAll(now uint64) {
	for _, pid := range slices.Sorted(maps.Keys(b.present)) {
		b.admit(pid, max(b.released, min(now, b.newest)))
	}
}
