package gateway

import (
	"bytes"
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"
)

// dispatch hands a request to its method. Methods that wait run in goroutines
// of their own; the others finish before the next message is read, so that a
// client may send them without waiting for answers.
func (c *conn) dispatch(r *request) {
	if c.g.ctx.Err() != nil {
		r.done(nil, errorf(codeClosing, "the gateway is closing"))
		return
	}
	switch r.method {
	case "proposal.submit":
		c.submit(r)
	case "tools.register":
		r.done(c.registerTools(r.params))
	case "policy.register":
		r.done(c.registerPolicy(r.params))
	case "runs.start":
		c.inOrder(r, c.startRun)
	case "runs.record_turns":
		r.done(c.recordTurns(r.params))
	case "runs.complete":
		c.slow(r, c.completeRun)
	case "runs.list":
		r.done(c.listRuns(r.params))
	case "runs.get_trace":
		c.slow(r, c.getTrace)
	case "runs.subscribe":
		c.subscribe(r)
	case "runs.unsubscribe":
		r.done(c.unsubscribe(r.params))
	case "calls.join":
		r.done(c.joinCall(r.params))
	case "metrics.snapshot":
		var none struct{}
		err := decodeParams(r.params, &none)
		r.done(c.g.Metrics(), err)
	case "$/cancelRequest":
		r.done(c.cancelRequest(r.params))
	default:
		r.done(nil, errorf(codeMethodNotFound, "unknown method %.100q", r.method))
	}
}

// slow runs a method in a goroutine.
func (c *conn) slow(r *request, f func(ctx context.Context, params jsontext.Value) (any, *rpcError)) {
	j := &job{request: r, slow: true, begin: func(ctx context.Context) bool {
		r.done(f(ctx, r.params))
		return true
	}}
	if !c.async(j) {
		r.done(nil, c.g.noRoom())
	}
}

// noRoom says that clients hold too much.
func (g *Gateway) noRoom() *rpcError {
	return errorf(CodeBusy, "too many requests at once: at most %d bytes of a connection, %d of all", g.limits.InFlightBytes, g.limits.HeldBytes)
}

// inOrder runs a method before the next message is read.
func (c *conn) inOrder(r *request, f func(ctx context.Context, params jsontext.Value) (any, *rpcError)) {
	r.done(f(c.ctx, r.params))
}

// registerTools handles tools.register: all tools of a list, or none. A name
// that is registered already gets the new registration; its calls in flight
// keep the old one.
func (c *conn) registerTools(raw jsontext.Value) (any, *rpcError) {
	if raw.Kind() == '[' {
		// The list may stand for the parameters themselves.
		raw = append(append([]byte(`{"tools":`), raw...), '}')
	}
	var p struct {
		Tools []toolSpec `json:"tools"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	specs := p.Tools
	if len(specs) == 0 {
		return nil, errorf(codeInvalidParams, "params/tools: a list of at least one tool")
	}
	made := make(map[string]*tool, len(specs))
	names := make([]string, 0, len(specs))
	for i := range specs {
		t, err := newTool(&specs[i], &c.g.limits)
		if err != nil {
			return nil, err
		}
		if made[t.name] != nil {
			return nil, errorf(codeInvalidParams, "tool %q: it is in the list twice", t.name)
		}
		made[t.name] = t
		names = append(names, t.name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := 0
	for name := range made {
		if c.tools[name] == nil {
			fresh++
		}
	}
	if len(c.tools)+fresh > c.g.limits.Tools {
		return nil, errorf(codeInvalidParams, "more than %d tools", c.g.limits.Tools)
	}
	for name, t := range made {
		if old := c.tools[name]; old != nil {
			// Registering again does not reset what was used up.
			if t.rate != nil && old.rate != nil {
				t.rate = old.rate.Relimit(t.rate)
			}
		}
		c.tools[name] = t
	}
	return map[string]any{"registered": names}, nil
}

func (c *conn) toolNamed(name string) *tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[name]
}

// registerPolicy handles policy.register: one more rule, which only forbids.
func (c *conn) registerPolicy(raw jsontext.Value) (any, *rpcError) {
	var rule policy.Rule
	if err := decodeParams(raw, &rule); err != nil {
		return nil, err
	}
	c.mu.Lock()
	rec, sc := c.rec, c.scope
	c.mu.Unlock()
	now := c.g.cfg.Now()
	if rec != nil {
		sc = rec.scope
		now -= rec.zero
	}
	if err := sc.rules.Add(rule, now); err != nil {
		return nil, errorf(codeInvalidParams, "%s", brief(err))
	}
	if rec != nil && (c.g.run != nil || rec.enter()) {
		if c.g.run == nil {
			defer rec.exit()
		}
		// On disk while the run goes on: a crash must not lose the rule.
		if err := rec.putPolicy(); err != nil {
			return nil, errorf(codeNotRecorded, "the rule is in force, but could not be recorded: %s", brief(err))
		}
	}
	return map[string]any{"registered": rule.Name}, nil
}

// cancelRequest handles $/cancelRequest {id}: the request in flight with that
// id ends as cancelled, and is still answered.
func (c *conn) cancelRequest(raw jsontext.Value) (any, *rpcError) {
	var p struct {
		ID jsontext.Value `json:"id"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	return map[string]any{"cancelled": c.cancelJob(string(bytes.TrimSpace(p.ID)))}, nil
}

// joinCall handles calls.join {tool_call_id}: the process that connected, and
// what it starts from then on, works for a tool call.
func (c *conn) joinCall(raw jsontext.Value) (any, *rpcError) {
	var p struct {
		ToolCallID string `json:"tool_call_id"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	socket := c.wire.socket()
	if socket == nil || c.g.cfg.Join == nil {
		return nil, errorf(codeNotJoined, "tool calls have no cgroups here")
	}
	if err := c.g.cfg.Join(socket, p.ToolCallID); err != nil {
		return nil, errorf(codeNotJoined, "%s", brief(err))
	}
	return map[string]any{"tool_call_id": p.ToolCallID}, nil
}

// scopeNow is the scope that the connection's own rules are in.
func (c *conn) scopeNow() *scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.scope
}
