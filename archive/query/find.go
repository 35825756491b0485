package query

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// chunkLines is how many lines one worker takes at a time.
const chunkLines = 512

// chunk is lines of the kernel layer, and what came of them.
type chunk struct {
	first  int // the number of its first line, from 1
	data   []byte
	ends   []int // of each line in data
	events []schema.KernelEvent
	match  []bool // by event and program
	err    error  // of the line behind events
	ready  chan struct{}
}

func (c *chunk) line(i int) []byte {
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.data[start:c.ends[i]]
}

// Found is a kernel event, its line, and whether each program matches it.
type Found struct {
	K     *schema.KernelEvent
	Line  []byte
	Match []bool
}

// EvalError is the error of a program that failed for an event, as for an element that is
// not there.
type EvalError struct {
	Program int // which of those that were given
	Err     error
}

func (e *EvalError) Error() string { return e.Err.Error() }

// Unwrap gives the error of the evaluation.
func (e *EvalError) Unwrap() error { return e.Err }

// Scan reads the kernel layer once for all programs. It decodes and evaluates on all cores,
// and iterates over all events in the order of the layer; each is valid until the next one. A
// table is needed if [Program.NeedsTable] says so of a program. An error is the last thing that comes.
func Scan(ctx context.Context, b *view.Bundle, table *view.Table, programs ...*Program) iter.Seq2[*Found, error] {
	return func(yield func(*Found, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		run := RunOf(b)
		workers := runtime.GOMAXPROCS(0)
		work, order := make(chan *chunk, workers), make(chan *chunk, 2*workers)
		free := make(chan *chunk, 4*workers)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range workers {
			all.Go(func() {
				at := make([]Event, len(programs)) // each keeps answers
				for i := range at {
					at[i] = Event{Run: run, Table: table}
				}
				for c := range work {
					c.evaluate(at, programs)
					close(c.ready)
				}
			})
		}
		all.Go(func() { cut(ctx, b, work, order, free) })
		for c := range order {
			select {
			case <-c.ready:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
			for i := range c.events {
				match := c.match[i*len(programs) : (i+1)*len(programs)]
				if !yield(&Found{&c.events[i], c.line(i), match}, nil) {
					return
				}
			}
			if c.err != nil {
				yield(nil, fmt.Errorf("%s: %w", b.Name, c.err))
				return
			}
			select {
			case free <- c:
			default:
			}
		}
		if ctx.Err() != nil {
			yield(nil, ctx.Err())
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
		if found.Match[0] && !yield(found.Line) {
			return nil
		}
	}
	return nil
}

// cut reads the layer and hands its lines out in chunks, to the workers and, in
// the order of the layer, to the one who collects.
func cut(ctx context.Context, b *view.Bundle, work, order chan<- *chunk, free <-chan *chunk) {
	defer close(work)
	defer close(order)
	send := func(c *chunk) bool {
		for _, to := range []chan<- *chunk{order, work} {
			select {
			case to <- c:
			case <-ctx.Done():
				return false
			}
		}
		return true
	}
	next := func(line int) *chunk {
		c := &chunk{}
		select {
		case c = <-free:
		default:
		}
		return &chunk{first: line, data: c.data[:0], ends: c.ends[:0], events: c.events[:0], match: c.match[:0],
			ready: make(chan struct{})}
	}
	n := 1
	c := next(n)
	for line, err := range b.Lines(ctx, schema.KernelPath) {
		if err != nil {
			c.err = err
			break
		}
		n++
		c.data = append(c.data, line...)
		if c.ends = append(c.ends, len(c.data)); len(c.ends) == chunkLines {
			if !send(c) {
				return
			}
			c = next(n)
		}
	}
	send(c)
}

// evaluate decodes the chunk's lines and asks the programs. An error ends it.
func (c *chunk) evaluate(at []Event, programs []*Program) {
	if cap(c.events) < len(c.ends) {
		c.events = make([]schema.KernelEvent, 0, chunkLines)
	}
	for i := range c.ends {
		line := c.line(i)
		c.events = c.events[:i+1]
		err := schema.DecodeKernelEvent(line, &c.events[i])
		for n, p := range programs {
			var match bool
			if at[n].K, at[n].Bytes = &c.events[i], len(line); err == nil {
				if match, err = p.EvalEvent(&at[n]); err != nil {
					err = &EvalError{n, err}
				}
			}
			c.match = append(c.match, match)
		}
		if err != nil {
			c.events = c.events[:i]
			c.err = fmt.Errorf("%s: line %d: %w", schema.KernelPath, c.first+i, err)
			return
		}
	}
}
