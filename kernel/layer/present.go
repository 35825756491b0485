package layer

import (
	"maps"
	"slices"
	"time"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// presentAfter is how long after Options.Begin the forks have been read of all processes that are in Options.Present
// although their forks were seen.
const presentAfter = 50 * time.Millisecond

// present are the processes of Options.Present that have no line yet.
type present struct {
	byPID map[uint32]kernel.Present
	begin uint64 // Options.Begin
}

func newPresent(list []kernel.Present, begin uint64) *present {
	p := &present{byPID: make(map[uint32]kernel.Present), begin: begin}
	for _, known := range list {
		p.byPID[known.PID] = known
	}
	return p
}

// before takes out those that must have a line before ev: its process and that process's ancestors, the oldest first.
func (p *present) before(ev *kernel.Event) []kernel.Present {
	if len(p.byPID) == 0 {
		return nil
	}
	if ev.Kind == schema.KindFork && !ev.Thread {
		delete(p.byPID, ev.Child.PID) // it came in between
	}
	if ev.Kind == schema.KindJoin {
		delete(p.byPID, ev.Task.PID)
	}
	return p.take(ev.Task.PID, nil)
}

// overdue reports whether there are some whose forks can no longer come.
func (p *present) overdue(now uint64) bool {
	return len(p.byPID) > 0 && now > p.begin+uint64(presentAfter)
}

// all takes all out, each after its ancestors.
func (p *present) all() (list []kernel.Present) {
	for _, pid := range slices.Sorted(maps.Keys(p.byPID)) {
		list = p.take(pid, list)
	}
	return list
}

// take takes a process out and adds it to list, after its ancestors.
func (p *present) take(pid uint32, list []kernel.Present) []kernel.Present {
	known, ok := p.byPID[pid]
	if !ok {
		return list
	}
	delete(p.byPID, pid)
	return append(p.take(known.PPID, list), known)
}
