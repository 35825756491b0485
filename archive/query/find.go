package query

import (
	"context"
	"fmt"
	"iter"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// EvalError is the error of a program that failed for an event, as for an element that is
// not there.
type EvalError struct {
	Program int // which of those that were given
	Err     error
}

func (e *EvalError) Error() string { return e.Err.Error() }

// Unwrap gives the error of the evaluation.
func (e *EvalError) Unwrap() error { return e.Err }

// Scan reads the kernel layer once for all programs, on all cores. The result of an event says which programs
// match it. A table is needed if [Program.NeedsTable] says so for one of the programs. An error ends the
// iteration; a program's error is an [EvalError].
func Scan(ctx context.Context, b *view.Bundle, table *view.Table,
	programs ...*Program) iter.Seq2[*archive.Scanned[[]bool], error] {
	run := RunOf(b)
	worker := func() func(*archive.Item) ([]bool, error) {
		at := make([]Event, len(programs)) // each keeps answers
		for i := range at {
			at[i] = Event{Run: run, Table: table}
		}
		return func(it *archive.Item) ([]bool, error) {
			match := make([]bool, len(programs))
			for i, p := range programs {
				at[i].K, at[i].Bytes = it.Kernel, len(it.Line)
				var err error
				if match[i], err = p.evalEvent(&at[i]); err != nil {
					return nil, &EvalError{i, err}
				}
			}
			return match, nil
		}
	}
	return func(yield func(*archive.Scanned[[]bool], error) bool) {
		for s, err := range archive.Scan(ctx, b.Reader, schema.KernelPath, worker) {
			if err != nil && ctx.Err() == nil {
				err = fmt.Errorf("%s: %w", b.Name, err)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// FindEvents calls yield with each line of the kernel layer that matches, until
// yield returns false. The line is valid until yield returns. An event for
// which the expression fails, as for an element that is not there, is an error.
func FindEvents(ctx context.Context, b *view.Bundle, p *Program, yield func(line []byte) bool) error {
	var table *view.Table
	if p.NeedsTable() {
		var err error
		if table, err = view.ReadProcesses(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	for found, err := range Scan(ctx, b, table, p) {
		if err != nil {
			return err
		}
		if found.Result[0] && !yield(found.Line) {
			return nil
		}
	}
	return nil
}
