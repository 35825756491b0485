package binding

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// MaxCalls limits how many calls are distinguished.
const MaxCalls = 10_000

// maxScan limits how many calls are examined for one event.
const maxScan = 256

// Options configure a [Correlator].
type Options struct {
	// Known makes sure that every report from before t, in nanoseconds since run_started, has been passed in, and
	// reports whether it has. It is called without a lock held. Nil if there is no log.
	Known func(t int64) bool
	// SDK means that there is an SDK log: it says when calls begin, so a decision alone opens no call.
	SDK bool
}

// Correlator binds kernel events to tool calls. All methods are safe for concurrent use.
type Correlator struct {
	known func(int64) bool
	sdk   bool
	own   map[string]bool
	logs  map[string]*written
	// deferred is in order of time.
	deferred []deferred
	heard    bool // calls are reported in this run
	// decisions are made about calls in this run. The policy layer has the sandbox's denials, too, which are
	// about none.
	decisions bool
	model     *Model

	mu      sync.Mutex
	budget  budget
	calls   map[string]*call
	order   []*call
	cgroups map[uint64]*call
	spans   map[string]*call
	open    []*call // started and not ended
	past    []*call // ended, in the order of their ends
	trees   trees
	shells  shells
	lines   uint64 // lines so far
	// proposals are in the order in which they were passed on.
	proposals []*proposal
	lost      uint64 // calls beyond MaxCalls

	counts         [len(methods) + 3]uint64 // events by method, or not bound
	overlap        group                    // while several calls were open
	between        group                    // at the edges of several consecutive calls
	outsideEffects effects
	began          bool // the run's command was executed
	sdkCalls       int
}

// Indices of counts, after the methods, for events without a call.
const (
	notEdge = len(methods) + iota
	notOverlap
	notAny
)

var countNames = append(methods[:], "edge", "overlap", "none")

// New returns a Correlator without calls.
func New(o Options) *Correlator {
	return &Correlator{
		known: o.Known, sdk: o.SDK, heard: o.Known != nil, budget: budget{left: maxEffects}, own: map[string]bool{},
		logs:  map[string]*written{},
		calls: map[string]*call{}, cgroups: map[uint64]*call{}, spans: map[string]*call{},
	}
}

// Own names paths and endpoints by which an agent reports, as values of kernel events. Events on them have class
// runtime: they are not in the capability surface or the report, and are never bound by time. It is called before the
// first Bind.
func (c *Correlator) Own(values ...string) {
	for _, v := range values {
		if v != "" {
			c.own[v] = true
		}
	}
}

// call returns the call with an id, and creates it if needed; nil if there are too many.
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

// Open reports whether a call is open, as far as is known.
func (c *Correlator) Open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > 0
}

// Bind binds one event of the kernel layer to a call, and counts it. e is the event's line. It is
// [layer.Options].Bind. One goroutine calls it, in order of time.
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
	if c.sdk && e.Kind == schema.KindExec && e.Class == schema.ClassAgent {
		c.executed(e)
	}
	// What the runner's own program does, such as a hook, belongs to no call, and neither does what the agent does to
	// report. The time of a flow is when it was counted.
	if reports || len(c.calls) == 0 && c.known == nil && c.model == nil || e.Kind == schema.KindFlow ||
		e.Class == schema.ClassRunner {
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

// SDK handles a line of the SDK's log.
func (c *Correlator) SDK(e *schema.SDKEvent, at agentlog.Arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line(at)
	// Do it now, since later there may be too many calls to examine.
	c.release(func(d *deferred) bool { return !d.by.shell.waits(at.At) })
	if e.ToolCallID == "" || e.EventType != agentlog.ToolCallStarted && e.EventType != agentlog.ToolCallCompleted {
		return
	}
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
		c.runs(k, e.Argv)
	} else {
		k.failed = k.failed || e.Failed
		c.end(k, at)
	}
}

// Begin opens a call that the runner's own gateway is about to dispatch. End closes it once the gateway has its
// answer, or expects none any more. They read the runner's clock while no event is being bound. So an event is bound
// the same way before and after the call's end is reported, and a gateway's window has no edges. tree is 0, or a
// process that was passed to Tree: then the window only binds what that process and its descendants do.
func (c *Correlator) Begin(id, tool string, tree uint32, now func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.call(id); k != nil {
		k.gateway, k.tool, k.tree = true, cmp.Or(k.tool, tool), tree
		c.begin(k, exactly(now()), byGateway)
	}
}

// End closes a call that Begin opened.
func (c *Correlator) End(id string, now func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls[id]; k != nil {
		c.end(k, exactly(now()))
	}
}

func exactly(t int64) agentlog.Arrival { return agentlog.Arrival{After: t, At: t} }

// Who said that a call began.
const (
	bySDK = 1 << iota
	byGateway
	byModel // any other report is better
)

func (c *Correlator) begin(k *call, at agentlog.Arrival, by uint8) {
	c.lines++
	again, first := k.begun&by != 0, k.begun&^byModel == 0
	if by == byModel && (again || !first) {
		return // the id is used again, or a better report exists
	}
	k.begun |= by
	k.twice = k.twice || again
	switch {
	case again && k.ended && !k.orph: // it is open again, from its first start
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
		c.stamped(&k.end)
		c.open = slices.DeleteFunc(c.open, func(x *call) bool { return x == k })
		if k.started {
			c.past = append(c.past, k)
		}
	}
}

// opens opens k at a time. The SDK's time replaces that of the policy's decision.
func (c *Correlator) opens(k *call, at agentlog.Arrival) {
	k.start, k.first = at, c.lines
	c.stamped(&k.start)
	if !k.started {
		k.started = true
		c.open = append(c.open, k)
	}
}

// Decision handles a line of the policy's log. A call that was not denied is open from then on, unless an SDK log or
// the gateway says when.
func (c *Correlator) Decision(e *schema.PolicyEvent, at agentlog.Arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line(at)
	k := c.decide(e.ToolCallID, e.Tool, e.Decision)
	switch {
	case k == nil:
	case k.ran() && !k.started && !k.ended && !c.sdk:
		c.lines++
		c.opens(k, at)
	case !k.ran():
		c.unopen(k)
	}
}

// Decided records the decision of the runner's own gateway about a call. decision is empty if the gateway left it to
// the client. Begin says when the call is open.
func (c *Correlator) Decided(id, tool, decision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.decide(id, tool, decision); k != nil {
		k.decided = true
		c.unopen(k)
	}
}

// Reported records a call that a client of the gateway says happened at an unknown time, or was denied.
func (c *Correlator) Reported(id, tool string, denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.call(id); k != nil {
		k.gateway, k.tool, k.denied = true, cmp.Or(k.tool, tool), k.denied || denied
	}
}

// unopen reverts that a decision opened a call.
func (c *Correlator) unopen(k *call) {
	if k.begun == 0 && k.started && !k.ended {
		k.started = false
		c.open = slices.DeleteFunc(c.open, func(x *call) bool { return x == k })
	}
}

// decide records a decision. A later one does not undo a denial.
func (c *Correlator) decide(id, tool, decision string) *call {
	c.decisions = c.decisions || decision != ""
	if id == "" {
		return nil
	}
	k := c.call(id)
	if k == nil {
		return nil
	}
	k.tool = cmp.Or(k.tool, tool)
	if decision == "" {
		return k
	}
	k.policy = true
	if !k.denied {
		k.decision = decision
	}
	k.denied = k.denied || schema.Denies(decision)
	return k
}

// Cgroup says that the processes in a cgroup work for a call. It is called before the first process is there. It
// reports false if there are too many calls.
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

// bindWindow binds an event by its time if the call is certain.
func (c *Correlator) bindWindow(e *schema.KernelEvent) {
	first, last := e.TNS, e.TNS
	if e.Repeat {
		first, last = e.TFirstNS, e.TLastNS
	}
	sure := true
	if c.known != nil {
		c.mu.Unlock() // the logs' lines are passed in with the lock held
		sure = c.known(last + 1)
		c.mu.Lock()
	}
	unsettled := false
	if c.model != nil {
		c.mu.Unlock()
		c.model.Known(last + 1)
		unsettled = c.model.Unsettled(last)
		c.mu.Lock()
	}
	c.stamp(false)
	by := c.trees.of(e)
	if c.hold(e, by, sure) {
		return
	}
	if len(c.deferred) < maxDeferred && (unsettled || c.unstamped(first, last) && !c.settled(by, first, last)) {
		c.deferred = append(c.deferred, later(e, by, sure))
		return
	}
	c.judge(e, by, sure && !unsettled)
}

// settled reports whether exactly one call of the process can have been open at that time, and the process is in that
// call's own tree. A tree only executes its own calls, so a line about another call changes nothing.
func (c *Correlator) settled(by member, first, last int64) bool {
	if by.root == 0 {
		return false
	}
	sure := true
	var room [maxFound]*call
	found := c.candidates(room[:0], by, first, last, &sure)
	return sure && len(found) == 1 && found[0].tree == by.root && found[0].certain(first, last)
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

// maxDeferred limits the waiting events.
const maxDeferred = 10_000

// judgeDeferred decides about the waiting events with what is known now.
func (c *Correlator) judgeDeferred() {
	c.stamp(true)
	c.release(nil)
	for i := range c.deferred {
		d := &c.deferred[i]
		c.judge(&d.e, d.by, d.sure)
	}
	c.deferred = nil
}

// judge binds an event by its time.
func (c *Correlator) judge(e *schema.KernelEvent, by member, sure bool) {
	first, last := e.TNS, e.TNS
	if e.Repeat {
		first, last = e.TFirstNS, e.TLastNS
	}
	n := e.Times()
	var room [maxFound]*call
	found := c.candidates(room[:0], by, first, last, &sure)
	if proposed := func(k *call) bool { return k.begun == byModel }; !all(found, proposed) {
		found = slices.DeleteFunc(found, proposed) // other reports of calls are better
	}
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
			c.began = true // the run's own command is expected
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

func all(calls []*call, is func(*call) bool) bool {
	return !slices.ContainsFunc(calls, func(k *call) bool { return !is(k) })
}

// maxFound limits how many calls one event may overlap.
const maxFound = maxScan

// candidates returns the calls that can have been open in a span, for a process in the trees of by. It clears sure if
// not all calls were examined.
func (c *Correlator) candidates(found []*call, by member, first, last int64, sure *bool) []*call {
	for i, k := range slices.Backward(c.open) {
		if len(c.open)-i > maxScan || len(found) == maxFound {
			*sure = false
			break
		}
		if k.doneBy(by) && k.possible(first, last) {
			found = append(found, k)
		}
	}
	for i, k := range slices.Backward(c.past) {
		if k.end.At < first {
			break // all earlier ones ended before it
		}
		if len(c.past)-i > maxScan || len(found) == maxFound {
			*sure = false
			break
		}
		if k.doneBy(by) && k.possible(first, last) {
			found = append(found, k)
		}
	}
	return found
}

// meet reports whether any two of the calls were open at the same time.
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

// written is what the kernel layer says about the writes to a log. A line was written by the write whose end, counted
// in bytes from the log's start, is the line's end.
type written struct {
	total   int64   // bytes before the first of writes
	passed  int64   // time of the last write in total
	writes  []write // in order of time
	ends    []int64 // ends of the lines that have been read beyond total
	pending []stamp // lines whose write is not known yet, in order
}

// write is one write, or several that the kernel counted together.
type write struct {
	bytes       int64
	count       uint64
	first, last int64
}

// stamp is the time of a line that will be made more exact.
type stamp struct {
	end  int64 // bytes of the log up to the end of the line
	read agentlog.Arrival
	at   *agentlog.Arrival
}

// maxPending limits the lines of a log that wait for their write, and the writes that wait for a line.
const maxPending = 10_000

// Log names a log, as in the values of kernel events, and its current size. It is called before the first Wrote.
func (c *Correlator) Log(path string, size int64) {
	if path != "" {
		c.logs[path] = &written{total: size}
	}
}

// Wrote is called for each write as soon as the kernel has reported it, before any event of that time is bound. So a
// line counts from when it was written, however late it is read. It is [layer.Options].Wrote. A write that returned
// before the first of the line's two times is not the line's. If it returned after the second, the line counts from the
// second.
func (c *Correlator) Wrote(path string, bytes, count uint64, first, last int64) {
	w := c.logs[path]
	if w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last <= w.passed { // a late report about another process
		w.total += int64(bytes)
		return
	}
	i := len(w.writes)
	for i > 0 && w.writes[i-1].last > last {
		i--
	}
	if len(w.writes) < maxPending {
		w.writes = slices.Insert(w.writes, i, write{int64(bytes), count, first, last})
	}
}

// line handles the position of a log line. c.mu is held.
func (c *Correlator) line(at agentlog.Arrival) {
	if w := c.logs[at.Log]; w != nil && at.End > w.total {
		w.ends = append(w.ends, at.End)
	}
}

// stamped makes a line's time more exact once its write is known. c.mu is held.
func (c *Correlator) stamped(at *agentlog.Arrival) {
	if w := c.logs[at.Log]; w != nil && at.End > 0 && len(w.pending) < maxPending {
		w.pending = append(w.pending, stamp{at.End, *at, at})
	}
}

// stamp sets the times of lines whose writes are known. final means that all lines have been read. c.mu is held.
func (c *Correlator) stamp(final bool) {
	for _, w := range c.logs {
		for len(w.pending) > 0 && w.stamp(w.pending[0], final) {
			w.pending = w.pending[1:]
		}
	}
}

// unstamped reports whether a line was written in a span by a write that is not known yet.
func (c *Correlator) unstamped(first, last int64) bool {
	for _, w := range c.logs {
		for _, s := range w.pending {
			if s.read.After > last {
				break
			}
			if first <= s.read.At {
				return true
			}
		}
	}
	return false
}

// stamp reports whether a line's write, and all lines of that write, are known. Of writes that the kernel counted
// together, the times of the first and the last are known. If there are as many writes as lines, each wrote one line.
func (w *written) stamp(s stamp, final bool) bool {
	for len(w.writes) > 0 && w.total+w.writes[0].bytes < s.end {
		w.total, w.passed = w.total+w.writes[0].bytes, w.writes[0].last
		w.writes = w.writes[1:]
	}
	if w.total >= s.end {
		return true // it was there before the command
	}
	if len(w.writes) == 0 {
		return false
	}
	by := w.writes[0]
	w.ends = w.ends[sort.Search(len(w.ends), func(i int) bool { return w.ends[i] > w.total }):]
	lines := sort.Search(len(w.ends), func(i int) bool { return w.ends[i] > w.total+by.bytes })
	switch {
	case w.total+by.bytes == s.end:
		by.first = by.last // the last write ended the line
	case lines > 0 && w.ends[lines-1] < w.total+by.bytes && !final:
		return false // more of its lines will be read
	case uint64(lines) == by.count && w.ends[0] == s.end:
		by.last = by.first
	}
	// The kernel reads the clock when the call returns. The line can have been read before.
	if *s.at == s.read && by.last >= s.read.After {
		s.at.After, s.at.At = min(max(by.first, s.read.After), s.read.At), min(by.last, s.read.At)
	}
	return true
}

// Facts are what the report needs to know about the run.
type Facts struct {
	RunID string
	// Correlation is cgroup_correlation from observation-health.json. The report claims no more than that.
	Correlation string
	// KernelLines counts the lines of the kernel layer.
	KernelLines uint64
	// Observed means that there is a kernel layer.
	Observed bool
}

// SDKCalls counts the calls in the SDK's log.
func (c *Correlator) SDKCalls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sdkCalls
}

// Report makes correlation-report.json, once everything has been passed in.
func (c *Correlator) Report(f Facts) *schema.CorrelationReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judgeDeferred()
	r := &schema.CorrelationReport{
		Schema: schema.CorrelationReportV0, RunID: f.RunID, Status: cmp.Or(f.Correlation, schema.Partial),
		Bindings: []schema.Binding{}, Ambiguities: []string{},
	}
	if c.model != nil {
		c.join()
		c.chain(r)
	}
	if len(c.order) == 0 && c.lost == 0 {
		return r // nothing was reported, so nothing can differ
	}
	r.Events = make(map[string]uint64)
	for i, n := range c.counts {
		if n > 0 {
			r.Events[countNames[i]] = n
		}
	}
	for _, k := range c.order {
		if k.moved && k.events() == 0 {
			continue
		}
		k.failed = k.failed || k.proposal != nil && k.proposal.failed
		r.Bindings = append(r.Bindings, k.binding())
		c.compare(k, f, r)
	}
	if c.overlap.effects.some() || c.overlap.events > 0 && c.unresolved() {
		r.ObservedNotReported = append(r.ObservedNotReported, c.overlap.list("overlap"))
	}
	if c.between.effects.some() {
		r.ObservedNotReported = append(r.ObservedNotReported, c.between.list("edge"))
	}
	if c.outsideEffects.some() {
		r.ObservedNotReported = append(r.ObservedNotReported, schema.Unreported{
			Code: "outside", KernelEventCount: c.counts[notAny], Effects: c.outsideEffects.list(),
		})
	}
	r.Ambiguities = append(r.Ambiguities, c.ambiguities(f)...)
	if len(r.Ambiguities) > 0 && r.Status == schema.Clean {
		r.Status = schema.Partial
	}
	return r
}

func (g *group) list(code string) schema.Unreported {
	return schema.Unreported{Code: code, ToolCallIDs: g.calls, KernelEventCount: g.events, Effects: g.effects.list()}
}

// compare lists where a call's reports and its events disagree.
func (c *Correlator) compare(k *call, f Facts, r *schema.CorrelationReport) {
	unreported := func(code string, n uint64, e schema.Effects) {
		r.ObservedNotReported = append(r.ObservedNotReported, schema.Unreported{
			Code: code, ToolCallIDs: []string{k.id}, Tool: k.tool, KernelEventCount: n, Effects: e,
		})
	}
	if k.reported() && k.ran() && k.events() == 0 {
		code := "no_events"
		switch {
		case !f.Observed:
			code = "no_kernel_layer"
		case k.overlap > 0:
			code = "overlap"
		case k.edge > 0:
			code = "edge"
		}
		r.ReportedNotObserved = append(r.ReportedNotObserved,
			schema.Unobserved{ToolCallID: k.id, Tool: k.tool, Code: code})
	}
	if e, yes := k.beyondClaim(); yes {
		unreported("beyond_claim", k.events(), e)
	}
	if n := k.stronger(); n > 0 && (k.denied || !k.reported() && !k.proposed && c.heard) {
		code := "unknown_call"
		if k.denied {
			code = "denied_call"
		}
		all := k.effects.list()
		all.Files = nil
		unreported(code, n, all)
	}
	if k.edgeEffects.some() {
		unreported("edge", k.edge, k.edgeEffects.list())
	}
}

// unresolved reports whether all events of a call overlap with others.
func (c *Correlator) unresolved() bool {
	return slices.ContainsFunc(c.order, func(k *call) bool { return k.overlap > 0 && k.events() == 0 && !k.denied })
}

// maxPerCode limits how many calls are named with the same code.
const maxPerCode = 100

func (c *Correlator) ambiguities(f Facts) []string {
	var out []string
	policy, left := 0, false
	for _, k := range c.order {
		if k.policy {
			policy++
			left = left || k.overlap > 0 && k.events() == 0 && !k.denied
		}
	}
	if c.decisions && f.KernelLines == 0 {
		out = append(out, schema.AmbiguousPolicyWithoutKernel)
	}
	if policy > 1 && left {
		out = append(out, schema.AmbiguousSessionCgroup)
	}
	if c.unresolved() {
		out = append(out, schema.AmbiguousOverlap)
	}
	for _, a := range []struct {
		code string
		is   func(*call) bool
	}{
		{schema.AmbiguousSDKWithoutPolicy, func(k *call) bool { return k.sdk && !k.policy && c.decisions }},
		{schema.AmbiguousNeverEnded, func(k *call) bool { return k.begun&^byModel != 0 && !k.ended && !k.denied }},
		{schema.AmbiguousNeverStarted, func(k *call) bool { return k.orph }},
		{schema.AmbiguousTwice, func(k *call) bool { return k.twice }},
		{schema.AmbiguousConflict, func(k *call) bool { return k.conflict }},
	} {
		n := 0
		for _, k := range c.order {
			if !a.is(k) {
				continue
			}
			if n++; n <= maxPerCode {
				out = append(out, a.code+k.id)
			}
		}
		if n > maxPerCode {
			out = append(out, fmt.Sprintf("%s… and %d more", a.code, n-maxPerCode))
		}
	}
	if c.lost > 0 {
		out = append(out, schema.AmbiguousTooManyCalls)
	}
	return out
}

// Tree says that a process has connected that executes its calls itself and in its descendants only. It is called
// before the process starts any of them; Begin then names the process.
func (c *Correlator) Tree(pid uint32, now func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trees.put(pid, member{root: pid, since: now()})
}

// Model connects a model gateway. It is called before the first Bind.
func (c *Correlator) Model(m Model) { c.model = &m }

// Proposed records a tool call whose last byte was passed on to the agent at time at, and returns a number for
// Recorded. args is JSON, or nil.
func (c *Correlator) Proposed(id, tool string, args []byte, at int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.proposals) >= MaxCalls {
		c.lost++
		return -1
	}
	p := &proposal{id: id, tool: tool, args: canonical(args), command: commandOf(args)}
	c.proposals = append(c.proposals, p)
	if c.model != nil && c.model.Opens {
		if id == "" {
			id = fmt.Sprintf("proposal-%d", len(c.proposals)-1)
		}
		if k := c.call(id); k != nil && !k.ended {
			p.own, k.proposed = k, true
			k.tool = cmp.Or(k.tool, tool)
			c.begin(k, exactly(at), byModel)
		}
	}
	return len(c.proposals) - 1
}

// Recorded says which line of the model layer has a proposal.
func (c *Correlator) Recorded(number int, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number >= 0 {
		c.proposals[number].seq = &seq
	}
}

// Answered says that a request brought the result of a call at time at, and whether that is an error. If no proposal
// has the id, the first call of the tool without an id is meant: Gemini CLI gives such calls its own ids.
func (c *Correlator) Answered(id, tool string, failed bool, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.proposals, func(p *proposal) bool { return id != "" && p.id == id })
	if i < 0 {
		i = slices.IndexFunc(c.proposals, func(p *proposal) bool { return p.id == "" && p.tool == tool && !p.answered })
	}
	if i < 0 || c.proposals[i].answered {
		return
	}
	p := c.proposals[i]
	p.answered, p.failed = true, failed
	if k := p.own; k != nil && k.begun == byModel && !k.ended {
		c.end(k, exactly(at))
	}
}

// Arguments sets the arguments of a call, as JSON.
func (c *Correlator) Arguments(id string, args []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls[id]; k != nil && k.args == nil {
		k.args = canonical(args)
	}
}

// join finds the proposal of each reported call: by its id, otherwise by the tool's name and equal arguments or the
// same shell command, in order.
func (c *Correlator) join() {
	for _, p := range c.proposals {
		k := p.own
		if p.id != "" {
			k = c.calls[p.id]
		}
		if k != nil && k.proposal == nil {
			k.proposal, k.matchedBy = p, schema.MatchedByID
			p.called = k
		}
	}
	alike := []func(p *proposal, k *call) bool{
		func(p *proposal, k *call) bool {
			return sameTool(p.tool, k.tool) && p.args != nil && bytes.Equal(p.args, k.args)
		},
		func(p *proposal, k *call) bool {
			_, command, found := strings.Cut(k.argv, "\x00")
			return found && p.command == command && command != ""
		},
	}
	for _, same := range alike {
		for _, k := range c.order {
			if k.proposal != nil || !k.reported() {
				continue
			}
			i := slices.IndexFunc(c.proposals, func(p *proposal) bool {
				return (p.called == nil || !p.called.reported()) && same(p, k)
			})
			if i < 0 {
				continue
			}
			p := c.proposals[i]
			if own := p.called; own != nil {
				own.proposal, own.moved = nil, true // its events belong to the reported call
			}
			k.proposal, k.matchedBy, p.called = p, schema.MatchedByArguments, k
		}
	}
}

// chain lists where proposals and calls differ.
func (c *Correlator) chain(r *schema.CorrelationReport) {
	told := slices.ContainsFunc(c.order, (*call).reported)
	for _, p := range c.proposals {
		k := p.called
		if k != nil && k.reported() {
			if k.matchedBy == schema.MatchedByID && k.args != nil && p.args != nil && !bytes.Equal(k.args, p.args) {
				r.ArgumentsDiffer = append(r.ArgumentsDiffer,
					schema.Proposal{ToolCallID: k.id, Tool: p.tool, ModelSeq: p.seq})
			}
			continue
		}
		// A reporter of only some tools, such as an MCP server, says nothing about the others.
		if c.sdk || told && !p.answered {
			r.ProposedNotCalled = append(r.ProposedNotCalled,
				schema.Proposal{ToolCallID: p.id, Tool: p.tool, ModelSeq: p.seq})
		}
	}
	for _, k := range c.order {
		if k.reported() && k.proposal == nil {
			r.CalledNotProposed = append(r.CalledNotProposed, schema.Proposal{ToolCallID: k.id, Tool: k.tool})
		}
	}
}

// executed handles an exec without a call. c.mu is held.
func (c *Correlator) executed(e *schema.KernelEvent) {
	argv := joined(e.Argv)
	by := c.trees.of(e)
	if argv == "" || facts.ArgumentsOf(e) == facts.Cut || by.shell.claimed() {
		return
	}
	if len(argv) > agentlog.MaxArgv {
		argv = "" // no line can name it; the process may become another shell
	}
	s := &command{argv: argv, pid: e.PID, at: e.TNS, parent: by.shell}
	by.shell = s
	if by.since == 0 {
		by.since = e.TNS
	}
	c.trees.put(e.PID, by)
	if c.trees.of(e).shell != s {
		return // no room, so nothing could be attributed to it
	}
	c.shells.calls = slices.DeleteFunc(c.shells.calls, func(k *call) bool { return k.ended && k.end.At < e.TNS })
	for i, k := range c.shells.calls {
		if k.argv == argv && argv != "" && e.TNS >= k.start.At-patience {
			c.shells.calls = slices.Delete(c.shells.calls, i, i+1)
			c.claim(k, s)
			return
		}
	}
	if len(c.shells.execs) == maxShells {
		c.shells.execs[0].argv = "" // its processes may refer to it for a long time
		c.shells.execs = slices.Delete(c.shells.execs, 0, 1)
	}
	c.shells.execs = append(c.shells.execs, s)
}

// runs handles the command of a call that has begun. c.mu is held.
func (c *Correlator) runs(k *call, args []string) {
	argv := joined(args)
	if argv == "" || k.argv != "" || k.ended || !k.started {
		return
	}
	k.argv, c.shells.said = argv, true
	c.shells.execs = slices.DeleteFunc(c.shells.execs, func(s *command) bool {
		return s.claimed() || s.at < k.start.At-patience
	})
	for i, s := range c.shells.execs {
		if s.argv == argv && s.at <= k.start.At {
			c.shells.execs = slices.Delete(c.shells.execs, i, i+1)
			c.claim(k, s)
			return
		}
	}
	if len(c.shells.calls) == maxShells {
		c.shells.calls = slices.Delete(c.shells.calls, 0, 1)
	}
	c.shells.calls = append(c.shells.calls, k)
}

// claim assigns a command to a call. The call began with the command, or with the shell that the same process was
// before.
func (c *Correlator) claim(k *call, s *command) {
	for s.parent != nil && s.parent.pid == s.pid {
		s = s.parent
	}
	k.shell, s.call = s, k
	if s.at < k.start.At {
		k.start = agentlog.Arrival{After: s.at - 1, At: s.at} // the exec itself is inside
	}
	c.release(func(d *deferred) bool { return d.by.shell.claimed() })
}

// hold keeps an event back while a line may still say whose it is, and reports whether it did. c.mu is held.
func (c *Correlator) hold(e *schema.KernelEvent, by member, sure bool) bool {
	if !by.shell.waits(e.TNS) || e.Kind == schema.KindExec && !c.began {
		return false
	}
	if !c.shells.said { // the agent may never name commands
		var room [maxFound]*call
		if len(c.candidates(room[:0], by, e.TNS, e.TNS, &sure)) > 0 {
			return false
		}
	}
	if len(c.shells.waiting) == maxWaiting {
		oldest := 0
		c.release(func(*deferred) bool { oldest++; return oldest <= maxWaiting/2 })
	}
	c.shells.waiting = append(c.shells.waiting, later(e, by, sure))
	return true
}

// release decides about the events that need not wait any longer; nil: all.
func (c *Correlator) release(which func(*deferred) bool) {
	c.shells.waiting = slices.DeleteFunc(c.shells.waiting, func(d deferred) bool {
		if which != nil && !which(&d) {
			return false
		}
		c.judge(&d.e, d.by, d.sure)
		return true
	})
}
