package gateway

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/policy"
)

// methods are what clients may call. Methods that may wait begin in the order in which
// they were sent, and others may overtake them. All other methods end before the next
// message is read, so a client need not wait for answers before it sends more. The
// transport itself handles $/cancelRequest.
var methods = map[string]func(*client, *rpc.Request){
	"proposal.submit":   (*client).submit,
	"tools.register":    direct((*client).registerTools),
	"policy.register":   direct((*client).registerPolicy),
	"runs.start":        direct((*client).startRun),
	"runs.complete":     waiting((*client).completeRun),
	"runs.record_turns": direct((*client).recordTurns),
	"runs.list":         direct((*client).listRuns),
	"runs.get_trace":    waiting((*client).getTrace),
	"runs.subscribe":    (*client).subscribe,
	"runs.unsubscribe":  direct((*client).unsubscribe),
	"calls.join":        direct((*client).joinCall),
	"calls.own":         direct((*client).ownCalls),
	"metrics.snapshot":  direct((*client).metrics),
}

type method = func(*client, *rpc.Request) (any, *jsonrpc.Error)

// direct answers before it reads the next message.
func direct(f method) func(*client, *rpc.Request) {
	return func(c *client, r *rpc.Request) { r.Answer(f(c, r)) }
}

// waiting reads the next message at once.
func waiting(f method) func(*client, *rpc.Request) {
	return func(c *client, r *rpc.Request) {
		job := func(context.Context) (any, *jsonrpc.Error) {
			r.Wait()
			return f(c, r)
		}
		if !r.Go(job) {
			r.Busy()
		}
	}
}

// registerTools handles tools.register: all tools of a list, or none. A name
// that is registered already gets the new registration; its calls in flight
// keep the old one.
func (c *client) registerTools(r *rpc.Request) (any, *jsonrpc.Error) {
	if r.Params.Kind() == '[' {
		// The list may stand for the parameters themselves.
		r.Params = append(append(jsontext.Value(`{"tools":`), r.Params...), '}')
	}
	var p struct {
		Tools []toolSpec `json:"tools"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	specs := p.Tools
	if len(specs) == 0 {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/tools: must list at least one tool")
	}
	made := make(map[string]*tool, len(specs))
	names := make([]string, 0, len(specs))
	for i := range specs {
		t, err := newTool(&specs[i], &c.g.cfg.Limits)
		if err != nil {
			return nil, err
		}
		if made[t.name] != nil {
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "tool %q: the list has it twice", t.name)
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
	if len(c.tools)+fresh > c.g.cfg.Limits.Tools {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "more than %d tools", c.g.cfg.Limits.Tools)
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

func (c *client) toolNamed(name string) *tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[name]
}

// registerPolicy handles policy.register: one more rule, which only forbids.
func (c *client) registerPolicy(r *rpc.Request) (any, *jsonrpc.Error) {
	var rule policy.Rule
	if err := r.Decode(&rule); err != nil {
		return nil, err
	}
	run, rules, now := c.runNow(), c.rulesNow(), c.g.cfg.Now()
	if run != nil {
		rules, now = run.Rules, now-run.Zero
	}
	if err := rules.Add(rule, now); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%s", jsonrpc.Brief(err))
	}
	if run != nil && (c.g.run != nil || run.Enter()) {
		if c.g.run == nil {
			defer run.Leave()
		}
		// On disk while the run goes on: a crash must not lose the rule.
		if err := run.PutPolicy(); err != nil {
			return nil, jsonrpc.Errorf(codeNotRecorded, "the rule is in force, but could not be recorded: %s", jsonrpc.Brief(err))
		}
	}
	return map[string]any{"registered": rule.Name}, nil
}

// joinCall handles calls.join {tool_call_id}: from now on, the process that connected
// and what it starts work for a tool call.
func (c *client) joinCall(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		ToolCallID string `json:"tool_call_id"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	socket := c.conn.Socket()
	if socket == nil || c.g.cfg.Join == nil {
		return nil, jsonrpc.Errorf(codeNotJoined, "tool calls have no cgroups in this run")
	}
	if err := c.g.cfg.Join(socket, p.ToolCallID); err != nil {
		return nil, jsonrpc.Errorf(codeNotJoined, "%s", jsonrpc.Brief(err))
	}
	return map[string]any{"tool_call_id": p.ToolCallID}, nil
}

// ownCalls handles calls.own: from now on the process that connected and its
// descendants alone do what the client is asked to do.
func (c *client) ownCalls(r *rpc.Request) (any, *jsonrpc.Error) {
	var none struct{}
	if err := r.Decode(&none); err != nil {
		return nil, err
	}
	socket := c.conn.Socket()
	if socket == nil || c.g.cfg.Own == nil {
		return nil, jsonrpc.Errorf(codeNotJoined, "this gateway cannot tell the client's processes from others")
	}
	tree, err := c.g.cfg.Own(socket)
	if err != nil {
		return nil, jsonrpc.Errorf(codeNotJoined, "%s", jsonrpc.Brief(err))
	}
	c.tree.Store(tree)
	return map[string]any{}, nil
}

// metrics handles metrics.snapshot.
func (c *client) metrics(r *rpc.Request) (any, *jsonrpc.Error) {
	var none struct{}
	if err := r.Decode(&none); err != nil {
		return nil, err
	}
	return c.g.Metrics(), nil
}
