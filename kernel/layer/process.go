package layer

import (
	"unicode/utf8"

	"github.com/assay-run/assay-run/kernel"
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

// inherit makes p belong to the tool call of a process that it descends from; "" is none.
func (p *process) inherit(toolCall string) {
	if toolCall != "" {
		p.toolCall, p.boundBy = toolCall, schema.BoundByLineage
	}
}

// program is what p executes; empty: unknown.
func (p *process) program() string {
	if p == nil {
		return ""
	}
	return p.exe
}

// origin is what all lines of p say of it; nil is a process that is not known.
func (p *process) origin() (o origin) {
	if p != nil {
		o.execID, o.toolCall, o.boundBy = p.execID, p.toolCall, p.boundBy
	}
	return o
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

	foreign  bool // Options.Foreign
	checks   *Checks
	programs programs

	// tids are the ids of threads, for calls such as ptrace that take any of them. The end of a thread is not seen.
	// With keptThreads, every id counts as one of the run's.
	tids map[uint32]struct{}

	forks, checkForks, threads, joins, exits, missedExits uint64
	sharedTables                                          uint64 // see Reach.SharedTables
}

// programs recognizes assay-run itself among the programs that are executed, as Options says; each may be nil.
type programs struct {
	shim        func(argv []string) bool
	helper, own func(ev *kernel.Event) bool
}

func newTable(foreign bool, checks *Checks, programs programs) *table {
	return &table{byPID: make(map[uint32]*process), foreign: foreign, checks: checks, programs: programs}
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

// of finds or makes the instance that ev belongs to. parent is the one that forked it. p is nil only for an event that
// comes after its process was forgotten.
func (t *table) of(ev *kernel.Event) (p *process, parent uint64, joined bool) {
	p = t.find(ev)
	if ev.Kind == schema.KindFork {
		if ev.SharesFiles && (p == nil || !p.starting) {
			t.sharedTables++
		}
		if !ev.Thread {
			if p != nil { // the first process is forked by the runner
				parent = p.execID
			}
			return t.fork(ev, p), parent, false
		}
		t.thread(ev.Child.TID)
	}
	if p != nil || ev.Repeat || ev.Kind == schema.KindFlow || ev.PID == 0 { // the last is no process of the run
		return p, 0, false
	}
	p = t.join(ev)
	p.check = t.checks.of(ev.Task.CgroupID, ev.Time)
	return p, 0, true
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
		p.exe, p.check = parent.exe, parent.check
		p.inherit(parent.toolCall)
		p.setup, p.container, p.helper, p.own = parent.setup, parent.container, parent.helper, parent.own
	} else {
		p.check = t.checks.of(ev.Child.CgroupID, ev.Time)
	}
	if p.check != nil {
		t.checkForks++
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

// exec begins a new instance of p, and returns the one that it replaces.
func (t *table) exec(ev *kernel.Event, p *process) (replaced uint64) {
	replaced, p.execID = p.execID, t.nextID()
	is := &t.programs
	p.exe = ev.Value
	p.helper = is.helper != nil && is.helper(ev)
	p.own = is.own != nil && is.own(ev)
	p.starting = p.starting && is.shim != nil && ev.Filename() == "/proc/self/exe" && is.shim(ev.Argv)
	if id := ev.CallInEnv; id != "" && utf8.ValidString(id) {
		p.toolCall, p.boundBy = id, schema.BoundByEnv
	} else {
		p.inherit(p.toolCall)
	}
	return replaced
}

// checkOf returns the check that p is of, or nil. Byte counts of a connection have no process, only a cgroup.
func (t *table) checkOf(p *process, cgroupID uint64) *Check {
	switch {
	case p == nil:
		return t.checks.of(cgroupID, 0)
	case p.setup: // an engine's runtime, for the check
		return nil
	}
	return p.check
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

// survivors are the processes that were not seen to end so far.
func (t *table) survivors() (list []Survivor) {
	for pid, p := range t.byPID {
		if !p.exited {
			list = append(list, Survivor{PID: int(pid), Start: p.start})
		}
	}
	return list
}

// living returns the instance of a process that has not ended, or 0.
func (t *table) living(pid uint32) uint64 {
	if p := t.byPID[pid]; p != nil && !p.exited {
		return p.execID
	}
	return 0
}

// count adds the counts of processes to s.
func (t *table) count(s *Stats) {
	s.Forks, s.CheckForks, s.Threads, s.Exits, s.Joins, s.MissedExits = t.forks, t.checkForks, t.threads, t.exits,
		t.joins, t.missedExits
	s.Alive = len(t.survivors())
}
