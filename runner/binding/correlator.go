package binding

import (
	"cmp"
	"slices"
	"sync"
	"time"

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
	// Own are the paths and endpoints by which an agent reports, as values of
	// kernel events. What is done with them is class runtime: neither the
	// capability surface nor the report lists it.
	Own []string
}

// Correlator files kernel events under tool calls. All methods are safe for
// concurrent use.
type Correlator struct {
	known func(int64) bool
	own   map[string]bool
	heard bool // somebody reports calls

	mu      sync.Mutex
	budget  budget
	calls   map[string]*call
	order   []*call
	cgroups map[uint64]*call
	spans   map[string]*call
	open    []*call // started and not ended
	past    []*call // ended, in the order of it
	lines   uint64  // taken in so far
	lost    uint64  // calls beyond the bound

	counts         [len(methods) + 3]uint64 // events by method, or not bound
	overlap        group                    // while several calls were open
	between        group                    // at the edges of several calls that followed one another
	outsideEffects effects
	began          bool // the run's command was executed
	sdkCalls       int
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

// Events that no call got, after those by method.
const (
	notEdge = len(methods) + iota
	notOverlap
	notAny
)

var countNames = append(methods[:], "edge", "overlap", "none")

// New returns a Correlator that has heard of no call.
func New(o Options) *Correlator {
	c := &Correlator{
		known: o.Known, heard: o.Known != nil, budget: budget{left: maxEffects}, own: map[string]bool{},
		calls: map[string]*call{}, cgroups: map[uint64]*call{}, spans: map[string]*call{},
	}
	for _, p := range o.Own {
		c.own[p] = true
	}
	return c
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

// SDK takes in a line of the SDK's log.
func (c *Correlator) SDK(e *schema.SDKEvent, at agentlog.Arrival) {
	if e.ToolCallID == "" || e.EventType != agentlog.ToolCallStarted && e.EventType != agentlog.ToolCallCompleted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.call(e.ToolCallID)
	if k == nil {
		return
	}
	if !k.sdk {
		k.sdk = true
		c.sdkCalls++
	}
	k.tool = cmp.Or(k.tool, e.Tool)
	if e.SpanID != "" {
		c.spans[e.SpanID] = k
	}
	if e.EventType == agentlog.ToolCallStarted {
		c.begin(k, at, bySDK)
	} else {
		c.end(k, at)
	}
}

// Begin tells of a call that the runner's own gateway dispatches, and so of the
// very time.
func (c *Correlator) Begin(id, tool string, t int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.call(id); k != nil {
		k.gateway, k.tool = true, cmp.Or(k.tool, tool)
		c.begin(k, agentlog.Arrival{After: t, At: t}, byGateway)
	}
}

// answerMargin is how long the answer of a tool is taken to be on its way: what
// happens so shortly before it is here may come after the call.
const answerMargin = int64(time.Millisecond)

// End tells that the gateway has the answer, or expects none any more.
func (c *Correlator) End(id string, t int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls[id]; k != nil {
		c.end(k, agentlog.Arrival{After: t - answerMargin, At: t})
	}
}

// Who said that a call began.
const (
	bySDK = 1 << iota
	byGateway
)

func (c *Correlator) begin(k *call, at agentlog.Arrival, by uint8) {
	c.lines++
	again, first := k.begun&by != 0, k.begun == 0
	k.begun |= by
	k.twice = k.twice || again
	switch {
	case again && k.ended && !k.orph: // it is open once more, from its first start
		k.ended = false
		c.past = slices.DeleteFunc(c.past, func(x *call) bool { return x == k })
		c.open = append(c.open, k)
	case first && !k.ended:
		c.opens(k, at)
	}
}

func (c *Correlator) end(k *call, at agentlog.Arrival) {
	c.lines++
	k.orph = k.orph || k.begun == 0
	if !k.ended {
		k.end, k.ended, k.last = at, true, c.lines
		c.open = slices.DeleteFunc(c.open, func(x *call) bool { return x == k })
		if k.started {
			c.past = append(c.past, k)
		}
	}
}

// opens makes k open from at on. What the SDK says takes the place of what the
// policy's decision gave.
func (c *Correlator) opens(k *call, at agentlog.Arrival) {
	k.start, k.first = at, c.lines
	if !k.started {
		k.started = true
		c.open = append(c.open, k)
	}
}

// Decision takes in a line of the policy's log. A call that is not denied is
// open from then on, unless the SDK says better.
func (c *Correlator) Decision(e *schema.PolicyEvent, at agentlog.Arrival) {
	if e.ToolCallID == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.call(e.ToolCallID)
	if k == nil {
		return
	}
	k.policy, k.tool = true, cmp.Or(k.tool, e.Tool)
	if !k.denied { // a denial is not undone by a later line
		k.decision = e.Decision
	}
	switch e.Decision {
	case "deny", "denied", "block", "blocked", "reject", "rejected":
		k.denied = true
	default:
		if !k.started && !k.ended {
			c.lines++
			c.opens(k, at)
		}
	}
}

// Cgroup tells that the processes of a call are those in a cgroup. It is told
// before the first one is there. False: there are too many.
func (c *Correlator) Cgroup(id string, cgroup uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.call(id)
	if k == nil || len(c.cgroups) >= 2*MaxCalls {
		return false
	}
	k.attached, k.cgroupID = true, cgroup
	c.cgroups[cgroup] = k
	return true
}

// Bind binds one event of the kernel layer, whose line is e, and counts it. It
// is [layer.Options].Bind. One goroutine calls it, in the order of time.
func (c *Correlator) Bind(ev *kernel.Event, e *schema.KernelEvent) {
	if e.Class == schema.ClassCheck {
		return
	}
	if c.own[e.Value] && e.Kind != schema.KindExec {
		e.Class = schema.ClassRuntime
	}
	if e.Kind == schema.KindExec && e.BoundBy != schema.BoundByEnv && len(ev.Traceparent) > 0 {
		c.bindSpan(ev, e)
	}
	at := ev.CgroupID
	if ev.Kind == kernel.KindFork && !ev.Thread {
		at = ev.ChildCgroupID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.cgroups[at]; k != nil && at != 0 {
		k.conflict = k.conflict || e.ToolCallID != "" && e.ToolCallID != k.id
		e.ToolCallID, e.BoundBy = k.id, schema.BoundByCgroup
	}
	if e.ToolCallID != "" {
		c.file(c.call(e.ToolCallID), e)
		return
	}
	if len(c.calls) == 0 && c.known == nil || e.Kind == schema.KindFlow { // a flow's time is when it was counted
		c.counts[notAny] += e.Times()
		return
	}
	c.bindWindow(e)
}

// bindSpan binds a process that was executed with the TRACEPARENT of a call.
func (c *Correlator) bindSpan(ev *kernel.Event, e *schema.KernelEvent) {
	span := agentlog.Span(string(ev.Traceparent))
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
	n := e.Times()
	var room [maxFound]*call
	found := c.candidates(room[:0], first, last, &sure)
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

// candidates finds the calls that can have been open in a span. sure is unset
// when not all were looked at.
func (c *Correlator) candidates(found []*call, first, last int64, sure *bool) []*call {
	for i, k := range slices.Backward(c.open) {
		if len(c.open)-i > maxScan || len(found) == maxFound {
			*sure = false
			break
		}
		if k.possible(first, last) {
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
		if k.possible(first, last) {
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
