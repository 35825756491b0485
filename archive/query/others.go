package query

import (
	"context"
	"fmt"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// Process is the result of [FindProcesses].
type Process struct {
	RunID    string   `json:"run_id"`
	PID      uint32   `json:"pid"`
	PPID     uint32   `json:"ppid"`
	Exe      string   `json:"exe"`
	Argv     []string `json:"argv"`
	Cwd      string   `json:"cwd"`
	StartNS  int64    `json:"start_ns"`
	EndNS    *int64   `json:"end_ns"`
	ExitCode *int     `json:"exit_code"`
	Signal   string   `json:"signal,omitempty"`
}

// FindProcesses calls yield with each process that matches.
func FindProcesses(ctx context.Context, b *view.Bundle, p *Program, yield func(*Process) bool) error {
	t, err := view.ReadProcesses(ctx, b)
	if err != nil {
		return fmt.Errorf("%s: %w", b.Name, err)
	}
	return ProcessesOf(b, t, p, yield)
}

// ProcessesOf is [FindProcesses] for processes that were already read.
func ProcessesOf(b *view.Bundle, t *facts.Table, p *Program, yield func(*Process) bool) error {
	run := RunOf(b)
	for i := range t.All {
		x := &t.All[i]
		ok, err := p.Eval(ofProcess(run, t, x))
		if err != nil {
			return fmt.Errorf("%s: process %d: %w", b.Name, x.PID, err)
		}
		if !ok {
			continue
		}
		out := &Process{RunID: b.RunID(), PID: x.PID, PPID: x.PPID, Exe: x.Exe, Argv: x.Argv, Cwd: x.Cwd,
			StartNS: x.StartNS, Signal: x.Signal}
		if x.Ended {
			out.EndNS = &x.EndNS
			if x.Signal == "" {
				out.ExitCode = &x.ExitCode
			}
		}
		if !yield(out) {
			return nil
		}
	}
	return nil
}

// FindCalls calls yield with each tool call that matches.
func FindCalls(b *view.Bundle, p *Program, yield func(*schema.Binding) bool) error {
	run := RunOf(b)
	r := &b.Docs.Correlation
	for i := range r.Bindings {
		ok, err := p.Eval(ofCall(run, r, &r.Bindings[i]))
		if err != nil {
			return fmt.Errorf("%s: call %s: %w", b.Name, r.Bindings[i].ToolCallID, err)
		}
		if ok && !yield(&r.Bindings[i]) {
			return nil
		}
	}
	return nil
}

// FindTurns calls yield with each turn that matches, and its line.
func FindTurns(ctx context.Context, b *view.Bundle, p *Program, yield func(t *schema.Turn, line []byte) bool) error {
	run := RunOf(b)
	for it, err := range b.Items(ctx, schema.TurnsPath) {
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		ok, err := p.Eval(ofTurn(run, it.Turn))
		if err != nil {
			return fmt.Errorf("%s: %s: line %d: %w", b.Name, it.Path, it.Number, err)
		}
		if ok && !yield(it.Turn, it.Line) {
			return nil
		}
	}
	return nil
}

// FindRun reports whether the bundle as a whole matches.
func FindRun(b *view.Bundle, p *Program) (bool, error) {
	ok, err := p.Eval(RunOf(b))
	if err != nil {
		return false, fmt.Errorf("%s: %w", b.Name, err)
	}
	return ok, nil
}
