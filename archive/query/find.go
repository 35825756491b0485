package query

import (
	"context"
	"fmt"
	"iter"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// EvalError says that a program could not be evaluated for an event, for example because a list has too few elements.
type EvalError struct {
	Program int // index among the programs of Scan
	Err     error
}

func (e *EvalError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the evaluation.
func (e *EvalError) Unwrap() error { return e.Err }

// Scan reads the kernel layer once for all programs, on all cores. The result of an event says which programs
// match it. Table may be nil unless [Program.NeedsTable] is true for a program. An error ends the iteration. The error
// of a program is an [EvalError].
func Scan(ctx context.Context, b *view.Bundle, table *facts.Table,
	programs ...*Program) iter.Seq2[*archive.Scanned[[]bool], error] {
	run := RunOf(b)
	worker := func() func(*archive.Item) ([]bool, error) {
		at := make([]Event, len(programs)) // each caches its program's results
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
// yield returns false. The line is valid until yield returns. Errors are those of [Scan].
func FindEvents(ctx context.Context, b *view.Bundle, p *Program, yield func(line []byte) bool) error {
	var table *facts.Table
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
