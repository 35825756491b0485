package binding

import (
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// tally counts the events by what was decided about them, and keeps what they did.
type tally struct {
	budget  budget
	counts  [len(methods) + 3]uint64 // events by method, or not bound
	overlap group                    // while several calls were open
	between group                    // at the edges of several consecutive calls
	outside effects                  // of no call
	began   bool                     // the run's command was executed
}

func newTally() *tally { return &tally{budget: budget{left: maxEffects}} }

// Indices of counts, after the methods, for events without a call.
const (
	notEdge = len(methods) + iota
	notOverlap
	notAny
)

var countNames = append(methods[:], "edge", "overlap", "none")

// bound counts an event that is bound to k.
func (t *tally) bound(k *call, e *schema.KernelEvent) {
	i := slices.Index(methods[:], e.BoundBy)
	if k == nil || i < 0 {
		t.none(e)
		return
	}
	t.counts[i] += e.Times()
	k.add(i, e, &t.budget)
}

// none counts an event that belongs to no call, and that nobody has to report.
func (t *tally) none(e *schema.KernelEvent) { t.counts[notAny] += e.Times() }

// unreported counts an event during which no call can have been open. If that is not sure, there may have been one.
func (t *tally) unreported(e *schema.KernelEvent, sure bool) {
	if sure {
		t.none(e)
	} else {
		t.counts[notEdge] += e.Times()
	}
	if sure && e.Kind == schema.KindExec && !t.began {
		t.began = true // the run's own command is expected
		return
	}
	t.outside.add(e, &t.budget, false)
}

// several counts an event that may belong to any of these calls.
func (t *tally) several(found []*call, e *schema.KernelEvent) {
	n := e.Times()
	if meet(found) {
		t.counts[notOverlap] += n
		for _, k := range found {
			k.overlap += n
		}
		t.overlap.add(found, e, &t.budget)
		return
	}
	t.counts[notEdge] += n
	for _, k := range found {
		k.edge += n
	}
	t.between.add(found, e, &t.budget)
}

// atEdge counts an event at the edge of k.
func (t *tally) atEdge(k *call, e *schema.KernelEvent) {
	t.counts[notEdge] += e.Times()
	k.edge += e.Times()
	k.edgeEffects.add(e, &t.budget, false)
}

// byName returns the counts that are not 0.
func (t *tally) byName() map[string]uint64 {
	names := make(map[string]uint64)
	for i, n := range t.counts {
		if n > 0 {
			names[countNames[i]] = n
		}
	}
	return names
}

// group is a set of events that belong to one of several calls, or to none.
type group struct {
	events  uint64
	calls   []string // some of them
	effects effects
}

func (g *group) add(calls []*call, e *schema.KernelEvent, b *budget) {
	g.events += e.Times()
	for _, k := range calls {
		if len(g.calls) < 16 && !slices.Contains(g.calls, k.id) {
			g.calls = append(g.calls, k.id)
		}
	}
	g.effects.add(e, b, false)
}

func (g *group) list(code string) schema.Unreported {
	return schema.Unreported{Code: code, ToolCallIDs: g.calls, KernelEventCount: g.events, Effects: g.effects.list()}
}
