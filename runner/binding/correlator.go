package binding

import (
	"cmp"
	"sync"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
)

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
	heard bool // calls are reported in this run
	// decisions are made about calls in this run. The policy layer has the sandbox's denials, too, which are
	// about none.
	decisions bool
	model     *Model

	mu        sync.Mutex // guards what the parts know
	calls     *calls
	logs      *logTimes
	windows   *windows
	tally     *tally
	judge     *judge
	trees     *trees
	shells    *shells
	proposals *proposals
	deferred  waiting // until a log's write or a model's answer is known
	sdkCalls  int
}

// New returns a Correlator without calls.
func New(o Options) *Correlator {
	calls, logs, tally := newCalls(), newLogTimes(), newTally()
	windows := newWindows(logs)
	judge := &judge{windows: windows, tally: tally}
	return &Correlator{
		known: o.Known, sdk: o.SDK, own: map[string]bool{}, heard: o.Known != nil, calls: calls, logs: logs,
		windows: windows, tally: tally, judge: judge, trees: new(trees), shells: newShells(windows, judge),
		proposals: newProposals(calls, windows), deferred: waiting{judge: judge},
	}
}

// maxDeferred limits the events that wait.
const maxDeferred = 10_000

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

// Open reports whether a call is open, as far as is known.
func (c *Correlator) Open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.windows.open) > 0
}

// Bind binds one event of the kernel layer to a call, and counts it. e is the event's line. It is
// [layer.Options].Bind. One goroutine calls it, in order of time.
func (c *Correlator) Bind(ev *kernel.Event, e *schema.KernelEvent) {
	if e.Class == schema.ClassCheck {
		return
	}
	reports := c.own[e.Value] && e.Kind != schema.KindExec
	if reports && e.Class != schema.ClassRunner { // the sandbox mounts it where the agent finds it
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
	if k := c.calls.in(at); k != nil {
		k.conflict = k.conflict || e.ToolCallID != "" && e.ToolCallID != k.id
		e.ToolCallID, e.BoundBy = k.id, schema.BoundByCgroup
	}
	if e.ToolCallID != "" {
		c.tally.bound(c.calls.call(e.ToolCallID), e)
		return
	}
	if c.sdk && e.Kind == schema.KindExec && e.Class == schema.ClassAgent {
		c.shells.executed(e, c.trees)
	}
	// What the runner's own program does, such as a hook, belongs to no call, and neither does what the agent does to
	// report. The time of a flow is when it was counted.
	if reports || len(c.calls.order) == 0 && c.known == nil && c.model == nil || e.Kind == schema.KindFlow ||
		e.Class == schema.ClassRunner {
		c.tally.none(e)
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
	if k := c.calls.spans[span]; k != nil {
		e.ToolCallID, e.BoundBy = k.id, schema.BoundByEnv
	}
}

// SDK handles a line of the SDK's log.
func (c *Correlator) SDK(e *schema.SDKEvent, at agentlog.Arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs.read(at)
	// Do it now, since later there may be too many calls to examine.
	c.shells.waiting.release(func(d *deferred) bool { return !d.by.shell.waits(at.At) })
	if e.ToolCallID == "" || e.EventType != agentlog.ToolCallStarted && e.EventType != agentlog.ToolCallCompleted {
		return
	}
	k := c.calls.call(e.ToolCallID)
	if k == nil {
		return
	}
	if !k.sdk {
		k.sdk = true
		c.sdkCalls++
	}
	k.tool = cmp.Or(k.tool, e.Tool)
	if e.SpanID != "" {
		c.calls.spans[e.SpanID] = k
	}
	if e.EventType == agentlog.ToolCallStarted {
		c.windows.begin(k, at, bySDK)
		c.shells.runs(k, e.Argv)
	} else {
		k.failed = k.failed || e.Failed
		c.windows.end(k, at)
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
	if k := c.calls.call(id); k != nil {
		k.gateway, k.tool, k.tree = true, cmp.Or(k.tool, tool), tree
		c.windows.begin(k, exactly(now()), byGateway)
	}
}

// End closes a call that Begin opened.
func (c *Correlator) End(id string, now func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls.byID[id]; k != nil {
		c.windows.end(k, exactly(now()))
	}
}

func exactly(t int64) agentlog.Arrival { return agentlog.Arrival{After: t, At: t} }

// Decision handles a line of the policy's log. A call that was not denied is open from then on, unless an SDK log or
// the gateway says when.
func (c *Correlator) Decision(e *schema.PolicyEvent, at agentlog.Arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs.read(at)
	k := c.decide(e.ToolCallID, e.Tool, e.Decision)
	switch {
	case k == nil:
	case k.ran() && !k.started && !k.ended && !c.sdk:
		c.windows.allow(k, at)
	case !k.ran():
		c.windows.unopen(k)
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
		c.windows.unopen(k)
	}
}

// Reported records a call that a client of the gateway says happened at an unknown time, or was denied.
func (c *Correlator) Reported(id, tool string, denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.calls.call(id); k != nil {
		k.gateway, k.tool, k.denied = true, cmp.Or(k.tool, tool), k.denied || denied
	}
}

// decide records a decision. A later one does not undo a denial.
func (c *Correlator) decide(id, tool, decision string) *call {
	c.decisions = c.decisions || decision != ""
	if id == "" {
		return nil
	}
	k := c.calls.call(id)
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

// bindWindow binds an event by its time if the call is certain.
func (c *Correlator) bindWindow(e *schema.KernelEvent) {
	first, last := span(e)
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
	c.logs.settle(false)
	by := c.trees.of(e)
	begins := e.Kind == schema.KindExec && !c.tally.began // the run's command
	if !begins && c.shells.hold(e, by, sure) {
		return
	}
	if len(c.deferred.events) < maxDeferred &&
		(unsettled || c.logs.awaited(first, last) && !c.windows.settled(by, first, last)) {
		c.deferred.events = append(c.deferred.events, later(e, by, sure))
		return
	}
	c.judge.decide(e, by, sure && !unsettled)
}

// Log names a log, as in the values of kernel events, and its current size. It is called before the first Wrote.
func (c *Correlator) Log(path string, size int64) { c.logs.add(path, size) }

// Wrote is called for each write as soon as the kernel has reported it, before any event of that time is bound. So a
// line counts from when it was written, however late it is read. It is [layer.Options].Wrote. A write that returned
// before the first of the line's two times is not the line's. If it returned after the second, the line counts from the
// second.
func (c *Correlator) Wrote(path string, bytes, count uint64, first, last int64) {
	if !c.logs.has(path) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs.wrote(path, write{int64(bytes), count, first, last})
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
	c.logs.settle(true)
	c.shells.waiting.release(nil)
	c.deferred.release(nil)
	r := newReport(f, c.calls, c.tally, c.heard, c.decisions)
	if c.model != nil {
		c.proposals.join()
		c.proposals.chain(r.out, c.sdk)
	}
	r.fill()
	return r.out
}

// Tree says that a process has connected that executes its calls itself and in its descendants only. It is called
// before the process starts any of them; Begin then names the process.
func (c *Correlator) Tree(pid uint32, now func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trees.put(pid, member{root: pid, since: now()})
}

// Model connects a model gateway. It is called before the first Bind.
func (c *Correlator) Model(m Model) { c.model, c.proposals.opens = &m, m.Opens }

// Proposed records a tool call whose last byte was passed on to the agent at time at, and returns a number for
// Recorded. args is JSON, or nil.
func (c *Correlator) Proposed(id, tool string, args []byte, at int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proposals.add(id, tool, args, at)
}

// Recorded says which line of the model layer has a proposal.
func (c *Correlator) Recorded(number int, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number >= 0 {
		c.proposals.list[number].seq = &seq
	}
}

// Answered says that a request brought the result of a call at time at, and whether that is an error. If no proposal
// has the id, the first call of the tool without an id is meant: Gemini CLI gives such calls its own ids.
func (c *Correlator) Answered(id, tool string, failed bool, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proposals.answered(id, tool, failed, at)
}

// Arguments sets the arguments of a call, as JSON.
func (c *Correlator) Arguments(id string, args []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls.byID[id]; k != nil && k.args == nil {
		k.args = canonical(args)
	}
}

// Cgroup says that the processes in a cgroup work for a call. It is called before the first process is there. It
// reports false if there are too many calls.
func (c *Correlator) Cgroup(id string, cgroup uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls.attach(id, cgroup)
}
