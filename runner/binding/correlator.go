package binding

import (
	"slices"
	"sync"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
)

// MaxCalls bounds how many calls are told apart.
const MaxCalls = 10_000

// maxScan bounds how many calls are looked at for one event.
const maxScan = 256

// Options are what a [Correlator] needs.
type Options struct {
	// Known makes sure that everything reported before t, nanoseconds since
	// run_started, has been handed in, and tells whether that is so. It is
	// called without a lock held. Nil when there is no log.
	Known func(t int64) bool
	// SDK tells that there is an SDK's log: calls begin when it says so, and a
	// decision alone opens none.
	SDK bool
}

// Correlator files kernel events under tool calls. All methods are safe for
// concurrent use.
type Correlator struct {
	known func(int64) bool
	sdk   bool
	own   map[string]bool
	logs  map[string]*written
	// deferred are in the order of time.
	deferred []deferred
	heard    bool // somebody reports calls

	mu      sync.Mutex
	budget  budget
	calls   map[string]*call
	order   []*call
	cgroups map[uint64]*call
	spans   map[string]*call
	open    []*call // started and not ended
	past    []*call // ended, in the order of it
	trees   trees
	lines   uint64 // taken in so far
	lost    uint64 // calls beyond the bound

	counts         [len(methods) + 3]uint64 // events by method, or not bound
	overlap        group                    // while several calls were open
	between        group                    // at the edges of several calls that followed one another
	outsideEffects effects
	began          bool // the run's command was executed
	sdkCalls       int
}

// Events that no call got, after those by method.
const (
	notEdge = len(methods) + iota
	notOverlap
	notAny
)

var countNames = append(methods[:], "edge", "overlap", "none")

// New returns a Correlator that has heard of no call.
func New(o Options) *Correlator {
	return &Correlator{
		known: o.Known, sdk: o.SDK, heard: o.Known != nil, budget: budget{left: maxEffects}, own: map[string]bool{},
		logs:  map[string]*written{},
		calls: map[string]*call{}, cgroups: map[uint64]*call{}, spans: map[string]*call{},
	}
}

// Own names paths and endpoints by which an agent reports, as values of kernel
// events. What is done with them is class runtime: neither the capability
// surface nor the report lists it, and no call gets it by time. It is called before the
// first Bind.
func (c *Correlator) Own(values ...string) {
	for _, v := range values {
		if v != "" {
			c.own[v] = true
		}
	}
}

// call finds or makes a call; nil when there are too many.
func (c *Correlator) call(id string) *call {
	if k := c.calls[id]; k != nil {
		return k
	}
	if len(c.calls) >= MaxCalls {
		c.lost++
		return nil
	}
	k := &call{id: id}
	c.calls[id] = k
	c.order = append(c.order, k)
	return k
}

// Open tells whether a call is open, as far as is known.
func (c *Correlator) Open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > 0
}

// Bind binds one event of the kernel layer, whose line is e, and counts it. It
// is [layer.Options].Bind. One goroutine calls it, in the order of time.
func (c *Correlator) Bind(ev *kernel.Event, e *schema.KernelEvent) {
	if e.Class == schema.ClassCheck {
		return
	}
	reports := c.own[e.Value] && e.Kind != schema.KindExec
	if reports {
		e.Class = schema.ClassRuntime
	}
	if e.Kind == schema.KindExec && e.BoundBy != schema.BoundByEnv && ev.Traceparent != "" {
		c.bindSpan(ev, e)
	}
	at := ev.Task.CgroupID
	if ev.Kind == schema.KindFork && !ev.Thread {
		at = ev.Child.CgroupID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trees.see(e)
	if k := c.cgroups[at]; k != nil && at != 0 {
		k.conflict = k.conflict || e.ToolCallID != "" && e.ToolCallID != k.id
		e.ToolCallID, e.BoundBy = k.id, schema.BoundByCgroup
	}
	if e.ToolCallID != "" {
		c.file(c.call(e.ToolCallID), e)
		return
	}
	// What the runner's own program does, as for a hook, is no call's, and how the agent
	// reports is none's either.
	// a flow's time is when it was counted
	if reports || len(c.calls) == 0 && c.known == nil || e.Kind == schema.KindFlow || e.Class == schema.ClassRunner {
		c.counts[notAny] += e.Times()
		return
	}
	c.bindWindow(e)
}

// bindSpan binds a process that was executed with the TRACEPARENT of a call.
func (c *Correlator) bindSpan(ev *kernel.Event, e *schema.KernelEvent) {
	span := agentlog.Span(ev.Traceparent)
	if span == "" || c.known == nil {
		return
	}
	c.known(e.TNS)
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.spans[span]; k != nil {
		e.ToolCallID, e.BoundBy = k.id, schema.BoundByEnv
	}
}

// file counts a bound event.
func (c *Correlator) file(k *call, e *schema.KernelEvent) {
	i := slices.Index(methods[:], e.BoundBy)
	if k == nil || i < 0 {
		c.counts[notAny] += e.Times()
		return
	}
	c.counts[i] += e.Times()
	k.add(i, e, &c.budget)
}
