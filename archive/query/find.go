package query

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// chunkLines is how many lines one worker takes at a time.
const chunkLines = 1024

// chunk is lines of a layer, and what came of them.
type chunk struct {
	first int // the number of its first line, from 1
	data  []byte
	ends  []int // of each line in data

	found []int // the lines that match, by index
	err   error
	ready chan struct{}
}

func (c *chunk) line(i int) []byte {
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.data[start:c.ends[i]]
}

// FindEvents calls yield with each line of the kernel layer that matches, until
// yield returns false. The line is valid until yield returns. An event for
// which the expression fails, as for an element that is not there, is an error.
func FindEvents(ctx context.Context, b *view.Bundle, p *Program, yield func(line []byte) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var table *view.Table
	if p.Uses(ProcessVars...) {
		var err error
		if table, err = view.ReadProcesses(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	run := RunOf(b)
	workers := runtime.GOMAXPROCS(0)
	work, order := make(chan *chunk, workers), make(chan *chunk, 2*workers)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range workers {
		all.Go(func() {
			at := &Event{Run: run, Table: table, K: new(schema.KernelEvent)}
			for c := range work {
				c.evaluate(at, p)
				close(c.ready)
			}
		})
	}
	all.Go(func() { cut(ctx, b, work, order) })
	for c := range order {
		select {
		case <-c.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, i := range c.found {
			if !yield(c.line(i)) {
				return nil
			}
		}
		if c.err != nil {
			return fmt.Errorf("%s: %w", b.Name, c.err)
		}
	}
	return ctx.Err()
}

// cut reads the layer and hands its lines out in chunks, to the workers and, in
// the order of the layer, to the one who collects.
func cut(ctx context.Context, b *view.Bundle, work, order chan<- *chunk) {
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
		return &chunk{first: line, data: make([]byte, 0, 320*chunkLines), ends: make([]int, 0, chunkLines),
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

// evaluate finds the chunk's lines that match. An error ends it.
func (c *chunk) evaluate(at *Event, p *Program) {
	for i := range c.ends {
		line := c.line(i)
		at.Bytes = len(line)
		err := schema.DecodeKernelEvent(line, at.K)
		ok := false
		if err == nil {
			ok, err = p.EvalEvent(at)
		}
		if err != nil {
			c.err = fmt.Errorf("%s: line %d: %w", schema.KernelPath, c.first+i, err)
			return
		}
		if ok {
			c.found = append(c.found, i)
		}
	}
}
