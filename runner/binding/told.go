package binding

import (
	"cmp"
	"slices"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
)

// SDK takes in a line of the SDK's log.
func (c *Correlator) SDK(e *schema.SDKEvent, at agentlog.Arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line(at)
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
	} else {
		c.end(k, at)
	}
}

// Begin tells of a call that the runner's own gateway is about to dispatch, and
// End that the gateway has its answer, or expects none any more. They ask now
// for the time on the runner's clock while no event is being bound: so an event
// is bound alike whether it is seen before or after the call's end is told, and
// a window of the gateway's has no edges. tree is 0, or a process that Tree was told
// of: then only what that tree does is bound by the window.
func (c *Correlator) Begin(id, tool string, tree uint32, now func() int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.call(id); k != nil {
		k.gateway, k.tool, k.tree = true, cmp.Or(k.tool, tool), tree
		c.begin(k, exactly(now()), byGateway)
	}
}

// End is the end of Begin.
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
		c.stamped(&k.end)
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
	c.stamped(&k.start)
	if !k.started {
		k.started = true
		c.open = append(c.open, k)
	}
}

// Decision takes in a line of the policy's log. A call that nobody denied is
// open from then on, unless there is an SDK to say when, or the gateway says
// better.
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

// Decided tells what the runner's own gateway decided about a call; decision is empty
// if it left that to the client. Begin says whether and when the call is open.
func (c *Correlator) Decided(id, tool, decision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.decide(id, tool, decision); k != nil {
		k.decided = true
		c.unopen(k)
	}
}

// Reported tells of a call that a client of the gateway says happened, when is
// not known, or was denied.
func (c *Correlator) Reported(id, tool string, denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	if k := c.call(id); k != nil {
		k.gateway, k.tool, k.denied = true, cmp.Or(k.tool, tool), k.denied || denied
	}
}

// unopen takes back that a decision opened a call.
func (c *Correlator) unopen(k *call) {
	if k.begun == 0 && k.started && !k.ended {
		k.started = false
		c.open = slices.DeleteFunc(c.open, func(x *call) bool { return x == k })
	}
}

// decide notes a decision; a denial is not undone by a later one.
func (c *Correlator) decide(id, tool, decision string) *call {
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
