package layer

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// stamp sets what all lines have: the run, and times since its start.
type stamp struct {
	runID string
	start uint64
}

// since is a time of CLOCK_BOOTTIME as a line has it.
func (s stamp) since(t uint64) int64 { return int64(t - s.start) }

// write stamps a line of ev, or beside it.
func (s stamp) write(e *schema.KernelEvent, ev *kernel.Event, late bool) {
	e.RunID, e.TNS, e.Late = s.runID, s.since(ev.Time), late
	if e.TID == 0 {
		e.TID = e.PID
	}
	if e.Repeat {
		e.Count, e.TFirstNS, e.TLastNS = max(e.Count, 1), s.since(ev.First), s.since(ev.Last)
	}
}

// outlet is where lines go: each is bound to its tool call, gathered by the surface and written to the sink.
type outlet struct {
	bind    func(ev *kernel.Event, e *schema.KernelEvent, exe string)
	surface *surface.Builder
	sink    func(*schema.KernelEvent) error
	err     error // the first one; nothing is written after it
}

// bindTo binds a line of p to its tool call. What is bound by more than its time holds for p from now on.
func (o *outlet) bindTo(ev *kernel.Event, e *schema.KernelEvent, p *process) {
	if o.bind == nil {
		return
	}
	o.bind(ev, e, p.program())
	if p != nil && (e.Kind == schema.KindFork || e.Kind == schema.KindExec || e.Kind == schema.KindJoin) &&
		e.BoundBy != schema.BoundByWindow {
		p.toolCall, p.boundBy = e.ToolCallID, e.BoundBy
	}
}

// write hands a line out, of a process that executes exe. The error is the first one.
func (o *outlet) write(e *schema.KernelEvent, exe string) error {
	if o.surface != nil {
		if err := o.surface.Add(e, exe); err != nil && o.err == nil {
			o.err = err
		}
	}
	if o.err == nil {
		o.err = o.sink(e)
	}
	return o.err
}
