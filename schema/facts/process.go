package facts

import (
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// MaxProcesses limits the processes of a [Table]. Further ones are counted in Table.Beyond.
const MaxProcesses = 500_000

// Process is one process of a run.
type Process struct {
	PID, PPID uint32
	// Parent is the index in Table.All of the process that started it, -1 if that is not a process of the run.
	Parent int
	// Exe, Argv and Cwd describe the program that it executed last. While Execs is 0 they are the parent's.
	Exe   string
	Argv  []string
	Cwd   string
	Execs int
	// StartNS and EndNS are nanoseconds since run_started. EndNS is 0 unless Ended.
	StartNS, EndNS int64
	Ended          bool
	// ExitCode is -1 if a signal ended the process, or if its end was not recorded.
	ExitCode int
	Signal   string
	// Joined is true if the process was already running when it was first seen.
	Joined bool
}

// Instance is a process between two execs, or from its fork to its first exec.
type Instance struct {
	// ID is the exec id; 0 for a process whose beginning is not in the layer.
	ID  uint64
	PID uint32
	// Parent is the instance that forked this one, or that this one replaced by an exec; nil if that is not known.
	Parent *Instance
	// Forked is true until the process executes something: Exe, Argv and Cwd are its parent's. A process that was
	// already running when it was first seen is Forked without a Parent.
	Forked bool
	Exe    string
	Argv   []string
	Cwd    string
	// Made is true if the run made the program that it executes, or gave it its name. A later line may show it.
	Made bool
	// Note is for the reader of the lines, which keeps there what only it knows of the instance.
	Note any

	process int // index in Table.All, or -1
}

// Starter returns the instance that started this one, after its last exec; nil if that is not known.
func (i *Instance) Starter() *Instance {
	for i = i.Parent; i != nil && i.Forked; i = i.Parent {
	}
	return i
}

// Table holds the processes of a run in the order of their start. It is safe for concurrent use once all lines are
// read.
type Table struct {
	All    []Process
	Beyond uint64 // number of processes beyond MaxProcesses

	instances map[uint64]*Instance // by exec id
	pids      map[uint32]*Instance // the last one with each process id
	networks  Networks
	// forgets is true if ended processes are dropped, which All then does not have either. ended are the last ones.
	forgets bool
	ended   []uint64 // a ring, once it is full
	oldest  int
}

// keptEnds is the number of ended processes that a table which forgets still knows, for events that come after the end
// of their process.
const keptEnds = 4096

// NewTable makes an empty table.
func NewTable() *Table {
	return &Table{instances: map[uint64]*Instance{}, pids: map[uint32]*Instance{}}
}

// Add adds an event and returns the instance that acted; nil if that is not known. Events must come in order.
func (t *Table) Add(e *schema.KernelEvent) *Instance {
	t.networks.Add(e)
	switch e.Kind {
	case schema.KindFork, schema.KindJoin:
		return t.start(e)
	case schema.KindExec:
		return t.exec(e)
	case schema.KindExit:
		return t.exit(e)
	}
	return t.instances[e.ExecID]
}

func (t *Table) start(e *schema.KernelEvent) *Instance {
	in := &Instance{ID: e.ExecID, PID: e.PID, Parent: t.instances[e.ParentExecID], Forked: true, process: -1}
	if from := in.Parent; from != nil && e.Kind == schema.KindFork {
		in.Exe, in.Argv, in.Cwd, in.Made = from.Exe, from.Argv, from.Cwd, from.Made
	} else {
		in.Exe, in.Argv, in.Cwd = strings.Clone(e.Exe), cloneAll(e.Argv), strings.Clone(e.Cwd)
	}
	if e.ExecID == 0 || len(t.instances) >= 2*MaxProcesses || !t.forgets && len(t.All) >= MaxProcesses {
		t.Beyond++
		return in
	}
	t.keep(in)
	if t.forgets {
		return in
	}
	p := Process{PID: e.PID, PPID: e.PPID, Parent: -1, StartNS: e.TNS, ExitCode: -1, Joined: e.Kind == schema.KindJoin,
		Exe: in.Exe, Argv: in.Argv, Cwd: in.Cwd}
	if from := in.Parent; from != nil && from.process >= 0 && e.Kind == schema.KindFork {
		p.Parent, p.PPID = from.process, t.All[from.process].PID
	}
	in.process = len(t.All)
	t.All = append(t.All, p)
	return in
}

func (t *Table) keep(in *Instance) { t.instances[in.ID], t.pids[in.PID] = in, in }

func (t *Table) exec(e *schema.KernelEvent) *Instance {
	in := &Instance{ID: e.ExecID, PID: e.PID, Parent: t.instances[e.ParentExecID], Exe: strings.Clone(e.Value),
		Argv: cloneAll(e.Argv), Cwd: strings.Clone(e.Cwd), process: -1}
	if from := in.Parent; from != nil && from.process >= 0 {
		in.process = from.process
		p := &t.All[in.process]
		p.Exe, p.Argv, p.Cwd = in.Exe, in.Argv, in.Cwd
		p.Execs++
	}
	if e.ExecID != 0 && len(t.instances) < 2*MaxProcesses {
		t.keep(in)
	}
	if t.forgets && in.Parent != nil {
		delete(t.instances, e.ParentExecID) // it is the same process
	}
	return in
}

func (t *Table) exit(e *schema.KernelEvent) *Instance {
	in := t.instances[e.ExecID]
	if in == nil {
		return nil
	}
	if in.process >= 0 {
		p := &t.All[in.process]
		p.EndNS, p.Ended = e.TNS, true
		if sig := e.WaitStatus & 0x7f; sig != 0 {
			p.Signal = schema.SignalName(sig)
		} else {
			p.ExitCode = int(e.WaitStatus >> 8 & 0xff)
		}
	}
	if !t.forgets {
		return in
	}
	if len(t.ended) < keptEnds {
		t.ended = append(t.ended, e.ExecID)
		return in
	}
	if old := t.instances[t.ended[t.oldest]]; old != nil && t.pids[old.PID] == old {
		delete(t.pids, old.PID)
	}
	delete(t.instances, t.ended[t.oldest])
	t.ended[t.oldest] = e.ExecID
	t.oldest = (t.oldest + 1) % keptEnds
	return in
}

// cloneAll clones a list and its strings, which may be parts of a line.
func cloneAll(list []string) []string {
	list = slices.Clone(list)
	for i, s := range list {
		list[i] = strings.Clone(s)
	}
	return list
}

// Of returns the index in All of the process with an exec id, or -1 if it is unknown.
func (t *Table) Of(execID uint64) int {
	if in := t.instances[execID]; in != nil {
		return in.process
	}
	return -1
}

// Instance returns the instance with an exec id; nil if it is unknown.
func (t *Table) Instance(execID uint64) *Instance { return t.instances[execID] }

// Known returns the number of instances that the table still knows.
func (t *Table) Known() int { return len(t.instances) }

// Program returns what the process with an exec id was executing; empty if unknown.
func (t *Table) Program(execID uint64) (exe string, argv []string, cwd string) {
	if in := t.instances[execID]; in != nil && in.process >= 0 {
		return in.Exe, in.Argv, in.Cwd
	}
	return "", nil, ""
}

// Last returns the last instance with a process id; nil if there is none.
func (t *Table) Last(pid uint32) *Instance { return t.pids[pid] }

// Network returns the network namespace of an event; see [Networks.Of].
func (t *Table) Network(e *schema.KernelEvent) Network { return t.networks.Of(e) }
