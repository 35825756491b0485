package view

import (
	"context"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// MaxProcesses limits a table. Further processes are counted in Table.Beyond.
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

// instance is a process between two execs.
type instance struct {
	process int
	exe     string
	argv    []string
	cwd     string
}

// Table holds the processes of a run in the order of their start. It is safe for concurrent use once all events are
// added.
type Table struct {
	All    []Process
	Beyond uint64 // number of processes beyond MaxProcesses

	instances map[uint64]instance // by exec_id
	networks  Networks
}

// NewTable makes an empty table.
func NewTable() *Table { return &Table{instances: map[uint64]instance{}} }

// ReadProcesses fills a table from a bundle's kernel layer.
func ReadProcesses(ctx context.Context, b Items) (*Table, error) {
	t := NewTable()
	for it, err := range b.Items(ctx, schema.KernelPath) {
		if err != nil {
			return nil, err
		}
		t.Add(it.Kernel)
	}
	return t, nil
}

// Add adds an event. Events must come in order. Those that are not about processes are ignored.
func (t *Table) Add(e *schema.KernelEvent) {
	t.networks.Add(e)
	switch e.Kind {
	case schema.KindFork, schema.KindJoin:
		t.start(e)
	case schema.KindExec:
		in, ok := t.instances[e.ParentExecID]
		if !ok {
			return
		}
		p := &t.All[in.process]
		p.Exe, p.Argv, p.Cwd = strings.Clone(e.Value), e.Argv, e.Cwd
		p.Execs++
		t.instances[e.ExecID] = instance{in.process, p.Exe, p.Argv, p.Cwd}
	case schema.KindExit:
		in, ok := t.instances[e.ExecID]
		if !ok {
			return
		}
		p := &t.All[in.process]
		p.EndNS, p.Ended = e.TNS, true
		if sig := e.WaitStatus & 0x7f; sig != 0 {
			p.Signal = schema.SignalName(sig)
		} else {
			p.ExitCode = int(e.WaitStatus >> 8 & 0xff)
		}
	}
}

func (t *Table) start(e *schema.KernelEvent) {
	if len(t.All) >= MaxProcesses || e.ExecID == 0 {
		t.Beyond++
		return
	}
	p := Process{PID: e.PID, PPID: e.PPID, Parent: -1, StartNS: e.TNS, ExitCode: -1, Joined: e.Kind == schema.KindJoin,
		Exe: e.Exe, Argv: e.Argv, Cwd: e.Cwd}
	if from, ok := t.instances[e.ParentExecID]; ok && e.Kind == schema.KindFork {
		p.Parent, p.PPID = from.process, t.All[from.process].PID
		p.Exe, p.Argv, p.Cwd = from.exe, from.argv, from.cwd
	}
	t.All = append(t.All, p)
	t.instances[e.ExecID] = instance{len(t.All) - 1, p.Exe, p.Argv, p.Cwd}
}

// Of returns the index in All of the process with an exec id, or -1 if it is unknown.
func (t *Table) Of(execID uint64) int {
	if in, ok := t.instances[execID]; ok {
		return in.process
	}
	return -1
}

// Program returns what the process with an exec id was executing; empty if unknown.
func (t *Table) Program(execID uint64) (exe string, argv []string, cwd string) {
	in := t.instances[execID]
	return in.exe, in.argv, in.cwd
}

// Network returns the network namespace of an event; see [Networks.Of].
func (t *Table) Network(e *schema.KernelEvent) Network { return t.networks.Of(e) }
