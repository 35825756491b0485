package gateway

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// client is one client of the gateway: the tools that it registered, and the run
// that its calls belong to.
type client struct {
	g     *Gateway
	conn  *rpc.Conn
	state *policy.State // for its calls that belong to no run

	cursors pages
	tree    atomic.Uint32 // only this process and its descendants execute its calls; 0: any process

	mu      sync.Mutex
	rules   *policy.Set // its own, or those of the run that it started
	tools   map[string]*tool
	run     *recording.Run
	subs    map[string]context.CancelFunc
	lastSub uint64
}

// Close removes the client from its run. A run without clients ends after the grace time.
func (c *client) Close() {
	if run := c.runNow(); run != nil {
		c.leave(run)
	}
}

// Serve calls the method of a request.
func (c *client) Serve(r *rpc.Request) {
	if serve := methods[r.Method]; serve != nil {
		serve(c, r)
		return
	}
	r.Answer(nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "unknown method %.100q", r.Method))
}

// rulesNow returns the client's own rules.
func (c *client) rulesNow() *policy.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rules
}

// runNow returns the run of the client's calls, or nil.
func (c *client) runNow() *recording.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// agent returns the client's agent: its token's, else its run's, else "".
func (c *client) agent() string {
	if id := c.conn.Identity(); id != "" {
		return id
	}
	if run := c.runNow(); run != nil && run != c.g.run {
		return run.Info().AgentID
	}
	return ""
}

// mayUse returns why the client may not use a run. With look, it only wants to read it, which every client without a
// token of its own may do.
func (c *client) mayUse(run *recording.Run, look bool) *jsonrpc.Error {
	agent := c.agent()
	if look {
		agent = c.conn.Identity()
	}
	if owner := run.Info().AgentID; agent != "" && owner != "" && owner != agent {
		return jsonrpc.Errorf(codeNotYours, "run %s is of another agent", run.ID)
	}
	return nil
}

// join makes run the run of the client's calls.
func (c *client) join(run *recording.Run) {
	c.mu.Lock()
	old := c.run
	c.run = run
	c.mu.Unlock()
	if run == old {
		return
	}
	run.Attach()
	if old != nil {
		c.leave(old)
	}
}

func (c *client) leave(run *recording.Run) {
	run.Detach(c.g.cfg.Limits.Grace, func() { c.g.abandon(run) })
}

// runFor returns the run of a request that reads it (look) or uses it: the run that the request names, else the
// client's. A client without a run joins the run that it uses.
func (c *client) runFor(id string, look bool) (*recording.Run, *jsonrpc.Error) {
	run := c.runNow()
	switch {
	case id == "" && run == nil:
		return nil, jsonrpc.Errorf(codeNoRun,
			"no run is open on this connection: open one with runs.start, or name one with run_id")
	case id == "" || run != nil && run.ID == id:
		return run, nil
	}
	named := c.g.runs.named(id)
	if named == nil {
		if past, ended := c.g.runs.earlier(id); ended && !look &&
			(c.conn.Identity() == "" || mark(c.conn.Identity()) == past.Agent) {
			return nil, jsonrpc.Errorf(codeRunState, "run %s is not open, it is %s", id, past.state())
		}
		return nil, jsonrpc.Errorf(codeNoRun, "run %.100q does not exist", id)
	}
	if err := c.mayUse(named, look); err != nil {
		return nil, err
	}
	if run == nil && !look {
		c.join(named)
	}
	return named, nil
}

// methods are the methods for clients. Those that may wait start in the order of their requests, and may be
// overtaken. The others end before the next message is read, so a client can send more without waiting for answers.
// Package rpc handles $/cancelRequest.
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

// direct makes a method that answers before the next message is read.
func direct(f method) func(*client, *rpc.Request) {
	return func(c *client, r *rpc.Request) { r.Answer(f(c, r)) }
}

// waiting makes a method that lets the next message be read at once.
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

// registerTools handles tools.register: it registers all tools of a list, or none. A name that is already registered
// gets the new registration; calls in flight keep the old one.
func (c *client) registerTools(r *rpc.Request) (any, *jsonrpc.Error) {
	if r.Params.Kind() == '[' {
		// The parameters may be the list itself.
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
			// Registering again does not reset the rate limit.
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

// registerPolicy handles policy.register: one more rule, which can only forbid.
func (c *client) registerPolicy(r *rpc.Request) (any, *jsonrpc.Error) {
	var rule policyfile.Rule
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
		// Write it at once: a crash must not lose the rule.
		if err := run.PutPolicy(); err != nil {
			return nil, jsonrpc.Errorf(codeNotRecorded, "the rule is in force, but could not be recorded: %s",
				jsonrpc.Brief(err))
		}
	}
	return map[string]any{"registered": rule.Name}, nil
}

// joinCall handles calls.join {tool_call_id}: from now on, the process that connected and the processes that it
// starts work for a tool call.
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

// ownCalls handles calls.own: from now on, only the process that connected and its descendants execute the client's
// calls.
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

// agentName matches valid agent ids: an id becomes a directory name.
var agentName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
})

// maxText limits an intent, a description or an outcome, in bytes.
const maxText = 16 << 10

// startRun handles runs.start: it opens a recording, or returns the one that the same idempotency key opened.
func (c *client) startRun(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		AgentID            string `json:"agent_id"`
		Intent             string `json:"intent"`
		OutcomeDescription string `json:"outcome_description"`
		IdempotencyKey     string `json:"idempotency_key"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	switch {
	case !agentName().MatchString(p.AgentID):
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"params/agent_id: must be 1 to 128 letters, digits, '.', '_' or '-', and not begin with '.' or '-'")
	case len(p.Intent) > maxText || len(p.OutcomeDescription) > maxText || len(p.IdempotencyKey) > maxIdentifier:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"params: a text must have at most %d bytes, an idempotency_key at most %d", maxText, maxIdentifier)
	}
	start := Start{AgentID: p.AgentID, Intent: p.Intent, OutcomeDescription: p.OutcomeDescription}
	run, err := c.g.start(r.Context(), c, start, p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	c.join(run)
	c.mu.Lock()
	c.rules = run.Rules
	c.mu.Unlock()
	return map[string]any{"run_id": run.ID}, nil
}

// completeRun handles runs.complete.
func (c *client) completeRun(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		RunID   string         `json:"run_id"`
		Outcome jsontext.Value `json:"outcome"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	outcome, perr := parseOutcome(p.Outcome)
	if perr != nil {
		return nil, perr
	}
	run, err := c.runFor(p.RunID, false)
	if err != nil {
		return nil, err
	}
	if err := c.g.end(run, outcome); err != nil {
		return nil, err
	}
	info := run.Info()
	res := map[string]any{"run_id": run.ID, "outcome": outcome.Word, "turns": info.Turns}
	if info.Bundle != "" {
		res["bundle"] = info.Bundle
	}
	return res, nil
}

// maxReport limits an outcome's object, in bytes.
const maxReport = 64 << 10

// parseOutcome reads an outcome: a word, or an object whose status is that word.
func parseOutcome(v jsontext.Value) (o recording.Outcome, _ *jsonrpc.Error) {
	bad := func(format string, args ...any) (recording.Outcome, *jsonrpc.Error) {
		return recording.Outcome{}, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/outcome"+format, args...)
	}
	at := ""
	switch v.Kind() {
	case '"':
		if err := json.Unmarshal(v, &o.Word); err != nil {
			return bad(": %s", jsonrpc.Brief(err))
		}
	case '{':
		var p struct {
			Status string `json:"status"`
			schema.OutcomeReport
		}
		if len(v) > maxReport {
			return bad(": must have at most %d bytes", maxReport)
		}
		if err := json.Unmarshal(v, &p, json.RejectUnknownMembers(true)); err != nil {
			var sem *json.SemanticError
			if errors.As(err, &sem) && errors.Is(err, json.ErrUnknownName) {
				return bad("%.100s: unknown key", sem.JSONPointer)
			}
			return bad(": %s", jsonrpc.Brief(err))
		}
		if k := p.Timestamp.Kind(); len(p.Timestamp) > 0 && k != '"' && k != '0' && k != 'n' {
			return bad("/timestamp: must be a string or a number")
		}
		o.Word, o.Report, at = p.Status, &p.OutcomeReport, "/status"
	default:
		return bad(": must be a string, or an object with status, summary, evidence, metrics and timestamp")
	}
	if o.Word == "" || len(o.Word) > maxText {
		return bad("%s: must have 1 to %d bytes", at, maxText)
	}
	return o, nil
}

// runInfo is one run in the result of runs.list.
type runInfo struct {
	RunID    string `json:"run_id"`
	AgentID  string `json:"agent_id,omitempty"`
	Intent   string `json:"intent,omitempty"`
	Expects  string `json:"outcome_description,omitempty"`
	State    string `json:"state"`
	Outcome  string `json:"outcome,omitempty"`
	Turns    uint64 `json:"turns"`
	Clients  int    `json:"clients"`
	TStartNS int64  `json:"t_start_ns"`
	TEndNS   int64  `json:"t_end_ns,omitzero"`
	Bundle   string `json:"bundle,omitempty"`
}

// listRuns handles runs.list.
func (c *client) listRuns(r *rpc.Request) (any, *jsonrpc.Error) {
	var none struct{}
	if err := r.Decode(&none); err != nil {
		return nil, err
	}
	runs := []runInfo{}
	for _, run := range c.g.runs.all() {
		i := run.Info()
		if c.mayUse(run, true) != nil {
			continue
		}
		runs = append(runs, runInfo{
			RunID: run.ID, AgentID: i.AgentID, Intent: i.Intent, Expects: i.OutcomeDescription, State: i.State,
			Outcome: i.Outcome,
			Turns:   i.Turns, Clients: i.Clients, TStartNS: int64(i.TStart), TEndNS: int64(i.TEnd), Bundle: i.Bundle,
		})
	}
	return map[string]any{"runs": runs}, nil
}

// getTrace handles runs.get_trace: it returns at most limit turns from from_index on. The result has next_index if
// there are more.
func (c *client) getTrace(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		RunID     string  `json:"run_id"`
		FromIndex uint64  `json:"from_index"`
		Limit     *uint64 `json:"limit"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	run, err := c.runFor(p.RunID, true)
	if err != nil {
		return nil, err
	}
	t, rerr := run.Read(p.FromIndex)
	if rerr != nil {
		return nil, unreadable(rerr)
	}
	defer t.Close()
	limit := uint64(math.MaxUint64)
	if p.Limit != nil {
		limit = *p.Limit
	}
	turns, _, rerr := t.Page(limit)
	if rerr != nil {
		return nil, unreadable(rerr)
	}
	i := run.Info()
	res := map[string]any{"run_id": run.ID, "agent_id": i.AgentID, "state": i.State, "t_start_ns": int64(i.TStart),
		"turns": jsontext.Value(turns)}
	if i.TEnd > 0 {
		res["t_end_ns"], res["outcome"] = int64(i.TEnd), i.Outcome
	}
	if t.Behind() {
		res["next_index"] = t.Next
	}
	return res, nil
}

// unreadable is the error for a trace that cannot be read.
func unreadable(err error) *jsonrpc.Error {
	code := jsonrpc.CodeInternal
	switch {
	case errors.Is(err, recording.ErrNoTrace):
		code = codeNoRun
	case errors.Is(err, recording.ErrNoTurn):
		code = jsonrpc.CodeInvalidParams
	}
	return jsonrpc.Errorf(code, "%s", jsonrpc.Brief(err))
}

// subscribe handles runs.subscribe: the result has the turns so far, or their first page; later turns come in
// runs.turns notifications, and runs.ended comes last. A subscription reads turns at the client's pace, so a slow
// client costs no memory and misses nothing.
func (c *client) subscribe(r *rpc.Request) {
	var p struct {
		RunID     string `json:"run_id"`
		FromIndex uint64 `json:"from_index"`
	}
	if err := r.Decode(&p); err != nil {
		r.Answer(nil, err)
		return
	}
	run, err := c.runFor(p.RunID, true)
	if err != nil {
		r.Answer(nil, err)
		return
	}
	most := c.g.cfg.Limits.Subscriptions
	c.mu.Lock()
	full := len(c.subs) >= most
	c.lastSub++
	id := strconv.FormatUint(c.lastSub, 10)
	if !full {
		c.subs[id] = func() {} // replaced once it has started
	}
	c.mu.Unlock()
	if full || !c.conn.Beside(func(ctx context.Context) { c.follow(ctx, r, run, id, p.FromIndex) }) {
		// If Beside refuses, the connection is closing.
		r.Answer(nil, jsonrpc.Errorf(CodeBusy, "at most %d subscriptions on a connection", most))
	}
}

// follow serves a subscription from its result to its end.
func (c *client) follow(ctx context.Context, r *rpc.Request, run *recording.Run, id string, from uint64) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.subs[id] = cancel
	c.mu.Unlock()
	defer func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, id)
	}()
	t, err := run.Read(from)
	if err != nil {
		r.Answer(nil, unreadable(err))
		return
	}
	defer t.Close()
	turns, _, err := t.Page(math.MaxUint64)
	if err != nil {
		r.Answer(nil, unreadable(err))
		return
	}
	r.Answer(map[string]any{"subscription": id, "run_id": run.ID, "turns": jsontext.Value(turns), "next_index": t.Next},
		nil)
	for t.More(ctx) {
		turns, n, err := t.Page(math.MaxUint64)
		if err != nil {
			return
		}
		if n > 0 && !c.conn.Notify("runs.turns",
			map[string]any{"subscription": id, "run_id": run.ID, "turns": jsontext.Value(turns)}) {
			return
		}
	}
	if ctx.Err() == nil {
		i := run.Info()
		c.conn.Notify("runs.ended",
			map[string]any{"subscription": id, "run_id": run.ID, "state": i.State, "outcome": i.Outcome})
	}
}

// unsubscribe handles runs.unsubscribe.
func (c *client) unsubscribe(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		Subscription string `json:"subscription"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	c.mu.Lock()
	cancel := c.subs[p.Subscription]
	c.mu.Unlock()
	if cancel == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/subscription: subscription %.40q does not exist",
			p.Subscription)
	}
	cancel()
	return map[string]any{"unsubscribed": p.Subscription}, nil
}

// reportedTurn is a turn that a client reports. The recorder sets the indices and the identity of the line, and
// ignores the client's.
type reportedTurn struct {
	Prompt          *string                `json:"prompt"`
	Tool            string                 `json:"tool"`
	Parameters      jsontext.Value         `json:"parameters"`
	Output          jsontext.Value         `json:"output"`
	CLIOutcome      *schema.CLIOutcome     `json:"cli_outcome"`
	VerifierVerdict string                 `json:"verifier_verdict"`
	PolicyRejected  *schema.PolicyRejected `json:"policy_rejected"`
	ToolCallID      string                 `json:"tool_call_id"`
	TStartNS        *int64                 `json:"t_start_ns"`
	TEndNS          *int64                 `json:"t_end_ns"`

	ClientID   string `json:"client_id"`
	ProposalID string `json:"proposal_id"`

	// A client may send back a turn of a trace unchanged.
	IgnoredRecord     jsontext.Value `json:"record"`
	IgnoredIndex      jsontext.Value `json:"index"`
	IgnoredSeq        jsontext.Value `json:"seq"`
	IgnoredSchema     jsontext.Value `json:"schema"`
	IgnoredRunID      jsontext.Value `json:"run_id"`
	IgnoredSource     jsontext.Value `json:"source"`
	IgnoredActionID   jsontext.Value `json:"action_id"`
	IgnoredRejectedBy jsontext.Value `json:"rejected_by"`
	IgnoredError      jsontext.Value `json:"error"`
	IgnoredDryRun     jsontext.Value `json:"dry_run"`
	IgnoredReported   jsontext.Value `json:"reported"`
	IgnoredCut        jsontext.Value `json:"cut"`
	IgnoredBlobs      jsontext.Value `json:"blobs"`
}

// recordTurns handles runs.record_turns: it records turns that happened elsewhere, all or none.
func (c *client) recordTurns(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		RunID string         `json:"run_id"`
		Turns []reportedTurn `json:"turns"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	run, err := c.runFor(p.RunID, false)
	switch {
	case err != nil:
		return nil, err
	case len(p.Turns) == 0 || len(p.Turns) > c.g.cfg.Limits.Turns:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/turns: must have 1 to %d turns, found %d",
			c.g.cfg.Limits.Turns, len(p.Turns))
	}
	turns := make([]schema.TurnBody, len(p.Turns))
	now := int64(c.g.cfg.Now() - run.Zero)
	for i := range p.Turns {
		if turns[i], err = p.Turns[i].body(now); err != nil {
			return nil, jsonrpc.Errorf(err.Code, "params/turns/%d/%s", i, err.Message)
		}
	}
	if !run.Enter() {
		return nil, jsonrpc.Errorf(codeRunState, "run %s is not open", run.ID)
	}
	defer run.Leave()
	first, failure := run.Record(turns)
	if failure != nil {
		return nil, jsonrpc.Errorf(codeNotRecorded, "the turns could not be recorded: %s", jsonrpc.Brief(failure))
	}
	c.g.count.add(func(m *Metrics) { m.Turns += uint64(len(turns)) })
	if o := c.g.observer(run); o != nil {
		for _, t := range turns {
			if t.ToolCallID != "" {
				o.CallReported(t.ToolCallID, t.Tool, t.PolicyRejected != nil)
			}
		}
	}
	return map[string]any{"run_id": run.ID, "first_index": first, "count": len(turns)}, nil
}

func (t *reportedTurn) body(now int64) (schema.TurnBody, *jsonrpc.Error) {
	b := schema.TurnBody{
		Prompt: t.Prompt, Tool: t.Tool, Parameters: t.Parameters, Output: t.Output,
		CLIOutcome: t.CLIOutcome, VerifierVerdict: t.VerifierVerdict, PolicyRejected: t.PolicyRejected,
		Source: "reported", ToolCallID: t.ToolCallID, ClientID: t.ClientID, ProposalID: t.ProposalID, TStartNS: now,
		TEndNS: now,
	}
	if b.VerifierVerdict == "" {
		b.VerifierVerdict = schema.VerdictNotRun
	}
	if t.TStartNS != nil || t.TEndNS != nil {
		b.Reported = &schema.ReportedTimes{TStartNS: t.TStartNS, TEndNS: t.TEndNS}
	}
	o, p := t.CLIOutcome, t.PolicyRejected
	switch v := b.VerifierVerdict; {
	case len(t.Tool) > policyfile.MaxName || len(t.ToolCallID) > agentlog.MaxID:
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "tool must have at most %d bytes, tool_call_id at most %d",
			policyfile.MaxName, agentlog.MaxID)
	case len(t.ClientID) > maxIdentifier || len(t.ProposalID) > maxIdentifier:
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "client_id and proposal_id must have at most %d bytes",
			maxIdentifier)
	case v != schema.VerdictPass && v != schema.VerdictFail && v != schema.VerdictNotRun:
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "verifier_verdict: must be pass, fail or not_run")
	case o != nil && !(o.Kind == "exited" && o.Code != nil || o.Kind == "timeout" && o.Code == nil):
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			`cli_outcome: {"kind":"exited","code":N} or {"kind":"timeout"}`)
	case p != nil && !named(p):
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"policy_rejected: rule must have 1 to %d bytes, param at most as many", policyfile.MaxName)
	case p != nil && (o != nil || v != schema.VerdictNotRun || t.Output != nil):
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"policy_rejected: a rejected action must have no output, no cli_outcome, and the verdict not_run")
	}
	if p != nil {
		b.RejectedBy = byPolicy
	}
	return b, nil
}

// submit handles proposal.submit. Its calls belong to the run that is open at this moment.
func (c *client) submit(r *rpc.Request) {
	s := &submission{client: c, request: r, run: c.runNow()}
	s.turns = s.run != nil && s.run.Enter()
	if !r.Go(s.execute) {
		// Too many requests. Answering here slows down a client that floods, and keeps every call audited.
		s.busy = true
		r.Answer(s.execute(r.Context()))
	}
}
