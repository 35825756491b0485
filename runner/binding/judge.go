package binding

import (
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// judge binds events by their time.
type judge struct {
	windows *windows
	tally   *tally
}

// decide binds an event by its time. sure means that everything is known about that time.
func (j *judge) decide(e *schema.KernelEvent, by member, sure bool) {
	first, last := span(e)
	var room [maxFound]*call
	found := j.windows.candidates(room[:0], by, first, last, &sure)
	if proposed := func(k *call) bool { return k.begun == byModel }; !all(found, proposed) {
		found = slices.DeleteFunc(found, proposed) // other reports of calls are better
	}
	switch {
	case len(found) > 1:
		j.tally.several(found, e)
	case len(found) == 0:
		j.tally.unreported(e, sure)
	case sure && found[0].certain(first, last):
		e.ToolCallID, e.BoundBy = found[0].id, schema.BoundByWindow
		j.tally.bound(found[0], e)
	default:
		j.tally.atEdge(found[0], e)
	}
}

// span is when the first and the last of an event's occurrences were.
func span(e *schema.KernelEvent) (first, last int64) {
	if e.Repeat {
		return e.TFirstNS, e.TLastNS
	}
	return e.TNS, e.TNS
}

func all(calls []*call, is func(*call) bool) bool {
	return !slices.ContainsFunc(calls, func(k *call) bool { return !is(k) })
}

// deferred is an event that has to wait: at its time, a log line was written whose write is not known yet, or a
// model's answer had started that may contain a tool call. The kernel may report the count of repeated writes much
// later.
type deferred struct {
	e    schema.KernelEvent
	by   member
	sure bool
}

func later(e *schema.KernelEvent, by member, sure bool) deferred {
	d := deferred{*e, by, sure}
	d.e.Argv = slices.Clone(e.Argv) // the layer reuses it
	return d
}

// waiting are events that wait until more is known, in order of time.
type waiting struct {
	judge  *judge
	events []deferred
}

// release decides about the events that need not wait any longer; nil: all.
func (w *waiting) release(which func(*deferred) bool) {
	w.events = slices.DeleteFunc(w.events, func(d deferred) bool {
		if which != nil && !which(&d) {
			return false
		}
		w.judge.decide(&d.e, d.by, d.sure)
		return true
	})
}
