package layer

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/internal/slots"
	"github.com/assay-run/assay-run/schema"
)

// process is the current instance of one process.
type process struct {
	pid    uint32
	start  uint64 // boot time of its leader's start: distinguishes processes with the same pid
	execID uint64
	exe    string
	// toolCall is the tool call it belongs to, bound how.
	toolCall, boundBy string
	check             *Check // nil for the agent's
	// starting: the runner forked it, or what the runner forked did, and it has not executed the command yet.
	starting bool
	// helper: it executes assay-run's own program for an agent (Options.Helper).
	helper bool
	// own: it executes the recorder's own program (Options.Own).
	own    bool
	exited bool
	// mountNS is the number of its mount namespace; 0 is unknown.
	mountNS uint32
	// container is the id of the container that it is in; setup: an engine's runtime,
	// which is still making that.
	container string
	setup     bool
}

// keptExits is how many ended processes are remembered, for events that come
// after the exit: byte counts of connections, coalesced repeats.
const keptExits = 4096

// table is the process table: who is alive, and the last who were.
type table struct {
	byPID  map[uint32]*process
	ended  []*process // a ring, once full
	oldest int
	lastID uint64

	foreign bool // Options.Foreign
	// first has, by slot, the instance and class of the event whose repeats are
	// counted there: as many as the kernel has slots.
	first slots.Table[eventID]

	// tids are the ids of threads, for calls such as ptrace that take any of them. The end of a thread is not seen.
	// With keptThreads, every id counts as one of the run's.
	tids map[uint32]struct{}

	forks, threads, joins, exits, missedExits uint64
}

type eventID struct {
	id     uint64
	execID uint64
	class  schema.Class

	toolCall, boundBy string
	mounts            schema.Marks // see Builder.mountsOf
	container         string
}

func newTable() *table {
	return &table{byPID: make(map[uint32]*process)}
}

func (t *table) nextID() uint64 {
	t.lastID++
	return t.lastID
}

// find returns the process of an event, nil when it isn't known.
func (t *table) find(ev *kernel.Event) *process {
	p := t.byPID[ev.Task.PID]
	if p == nil || ev.Task.Start != 0 && p.start != 0 && p.start != ev.Task.Start {
		return nil
	}
	return p
}

// keptThreads bounds the threads that are remembered.
const keptThreads = 1 << 16

// thread notes a thread of a known process.
func (t *table) thread(tid uint32) {
	t.threads++
	if len(t.tids) < keptThreads {
		if t.tids == nil {
			t.tids = make(map[uint32]struct{})
		}
		t.tids[tid] = struct{}{}
	}
}

// has reports whether a process or thread is, or was lately, known to be one of the
// run's.
func (t *table) has(tid uint32) bool {
	_, thread := t.tids[tid]
	return t.byPID[tid] != nil || thread || len(t.tids) == keptThreads
}

// put makes p the holder of its pid.
func (t *table) put(p *process) {
	if old := t.byPID[p.pid]; old != nil && !old.exited {
		t.missedExits++ // its pid is in use again, so it has gone
	}
	t.byPID[p.pid] = p
}

// fork adds the child of a fork event; parent may be nil.
func (t *table) fork(ev *kernel.Event, parent *process) *process {
	t.forks++
	p := &process{pid: ev.Child.PID, start: ev.Child.Start, execID: t.nextID()}
	p.starting = (ev.Task.PID == 0 || parent != nil && parent.starting) && !t.foreign
	if parent != nil {
		p.exe, p.toolCall, p.check = parent.exe, parent.toolCall, parent.check
		p.setup, p.container, p.helper, p.own = parent.setup, parent.container, parent.helper, parent.own
		if p.toolCall != "" {
			p.boundBy = "lineage"
		}
	}
	t.put(p)
	return p
}

// join adds a process that was not seen forking.
func (t *table) join(ev *kernel.Event) *process {
	t.joins++
	p := &process{pid: ev.Task.PID, start: ev.Task.Start, execID: t.nextID()}
	t.put(p)
	return p
}

// exit marks p as ended, and forgets the one that ended keptExits before it.
func (t *table) exit(p *process) {
	if p.exited {
		return
	}
	t.exits++
	p.exited = true
	if len(t.ended) < keptExits {
		t.ended = append(t.ended, p)
		return
	}
	old := t.ended[t.oldest]
	if t.byPID[old.pid] == old {
		delete(t.byPID, old.pid)
	}
	t.ended[t.oldest] = p
	t.oldest = (t.oldest + 1) % keptExits
}

// Survivor is a process that was not seen to end. One that left the session's
// cgroup may have ended since.
type Survivor struct {
	PID   int
	Start uint64 // when its leader started: nanoseconds of CLOCK_BOOTTIME; 0 unknown
}

// alive is how many processes have not ended.
func (t *table) alive() (n int) {
	for _, p := range t.byPID {
		if !p.exited {
			n++
		}
	}
	return n
}
