package binding

import (
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// bindWindow binds an event by its time, if that tells.
func (c *Correlator) bindWindow(e *schema.KernelEvent) {
	first, last := e.TNS, e.TNS
	if e.Repeat {
		first, last = e.TFirstNS, e.TLastNS
	}
	sure := true
	if c.known != nil {
		c.mu.Unlock() // the logs are handed in under the lock
		sure = c.known(last + 1)
		c.mu.Lock()
	}
	c.stamp(false)
	root := c.trees.root(e)
	if len(c.deferred) < maxDeferred && c.unstamped(first, last) {
		later := *e
		later.Argv = slices.Clone(e.Argv) // the layer reuses it
		c.deferred = append(c.deferred, deferred{later, root, sure})
		return
	}
	c.judge(e, root, sure)
}

// deferred is an event of a time at which a line of a log was written whose write is not
// yet known. The kernel may give out the count of repeated writes much later.
type deferred struct {
	e    schema.KernelEvent
	root uint32
	sure bool
}

// maxDeferred bounds the events that wait.
const maxDeferred = 10_000

// judgeDeferred decides about the events that waited, by what is known now.
func (c *Correlator) judgeDeferred() {
	c.stamp(true)
	for i := range c.deferred {
		d := &c.deferred[i]
		c.judge(&d.e, d.root, d.sure)
	}
	c.deferred = nil
}

// judge binds an event by its time.
func (c *Correlator) judge(e *schema.KernelEvent, root uint32, sure bool) {
	first, last := e.TNS, e.TNS
	if e.Repeat {
		first, last = e.TFirstNS, e.TLastNS
	}
	n := e.Times()
	var room [maxFound]*call
	found := c.candidates(room[:0], root, first, last, &sure)
	switch {
	case len(found) > 1 && meet(found):
		c.counts[notOverlap] += n
		for _, k := range found {
			k.overlap += n
		}
		c.overlap.add(found, e, &c.budget)
	case len(found) > 1:
		c.counts[notEdge] += n
		for _, k := range found {
			k.edge += n
		}
		c.between.add(found, e, &c.budget)
	case len(found) == 0 && sure:
		c.counts[notAny] += n
		if e.Kind == schema.KindExec && !c.began {
			c.began = true // the run's own command is nobody's secret
			return
		}
		c.outsideEffects.add(e, &c.budget, false)
	case len(found) == 0:
		c.counts[notEdge] += n
		c.outsideEffects.add(e, &c.budget, false)
	case sure && found[0].certain(first, last):
		e.ToolCallID, e.BoundBy = found[0].id, schema.BoundByWindow
		c.file(found[0], e)
	default:
		c.counts[notEdge] += n
		found[0].edge += n
		found[0].edgeEffects.add(e, &c.budget, false)
	}
}

// maxFound bounds how many calls one event is said to overlap.
const maxFound = maxScan

// candidates finds the calls that can have been open in a span, for a process of the
// tree that root begins. sure is unset when not all were looked at.
func (c *Correlator) candidates(found []*call, root uint32, first, last int64, sure *bool) []*call {
	for i, k := range slices.Backward(c.open) {
		if len(c.open)-i > maxScan || len(found) == maxFound {
			*sure = false
			break
		}
		if k.doneBy(root) && k.possible(first, last) {
			found = append(found, k)
		}
	}
	for i, k := range slices.Backward(c.past) {
		if k.end.At < first {
			break // and so did all before it
		}
		if len(c.past)-i > maxScan || len(found) == maxFound {
			*sure = false
			break
		}
		if k.doneBy(root) && k.possible(first, last) {
			found = append(found, k)
		}
	}
	return found
}

// meet tells whether any two of the calls were open at one time.
func meet(calls []*call) bool {
	for i, k := range calls {
		for _, other := range calls[i+1:] {
			if k.meets(other) {
				return true
			}
		}
	}
	return false
}

// group is events that belong to one of several calls, or to none.
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
