package gateway

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
)

// maxText bounds an intent, a description or an outcome, in bytes.
const maxText = 16 << 10

// startRun handles runs.start: it opens a recording, or finds the one that the
// same idempotency key opened before.
func (c *conn) startRun(ctx context.Context, raw jsontext.Value) (any, *rpcError) {
	var p struct {
		AgentID            string `json:"agent_id"`
		Intent             string `json:"intent"`
		OutcomeDescription string `json:"outcome_description"`
		IdempotencyKey     string `json:"idempotency_key"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	switch {
	case !agentName().MatchString(p.AgentID):
		return nil, errorf(codeInvalidParams, "params/agent_id: 1 to 128 letters, digits, '.', '_' and '-', no dot or dash first")
	case len(p.Intent) > maxText || len(p.OutcomeDescription) > maxText || len(p.IdempotencyKey) > maxIdentifier:
		return nil, errorf(codeInvalidParams, "params: texts have at most %d bytes, an idempotency_key %d", maxText, maxIdentifier)
	}
	start := Start{AgentID: p.AgentID, Intent: p.Intent, OutcomeDescription: p.OutcomeDescription}
	rec, err := c.g.open(ctx, c, start, p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	c.join(rec)
	return map[string]any{"run_id": rec.id}, nil
}

// join makes rec the recording of the connection's calls.
func (c *conn) join(rec *recording) {
	c.mu.Lock()
	old := c.rec
	c.rec = rec
	c.mu.Unlock()
	rec.attach(c)
	if old != nil && old != rec {
		old.detach(c)
	}
}

// recordingFor is the recording of a request: the named one, else the
// connection's, else nil.
func (c *conn) recordingFor(runID string) (*recording, *rpcError) {
	c.mu.Lock()
	rec := c.rec
	c.mu.Unlock()
	if runID == "" || rec != nil && rec.id == runID {
		return rec, nil
	}
	named := c.g.recording(runID)
	if named == nil {
		return nil, errorf(codeNoRun, "no run %.100q", runID)
	}
	if rec == nil {
		c.join(named)
	}
	return named, nil
}

// reportedTurn is a turn as a client tells of it. Indices and the identity of
// the line are the recorder's: a client's are ignored.
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

	IgnoredIndex  jsontext.Value `json:"index"`
	IgnoredSeq    jsontext.Value `json:"seq"`
	IgnoredSchema jsontext.Value `json:"schema"`
	IgnoredRunID  jsontext.Value `json:"run_id"`
	IgnoredSource jsontext.Value `json:"source"`
}

// recordTurns handles runs.record_turns: turns that happened elsewhere, all of
// them or none.
func (c *conn) recordTurns(raw jsontext.Value) (any, *rpcError) {
	var p struct {
		RunID string         `json:"run_id"`
		Turns []reportedTurn `json:"turns"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	rec, err := c.recordingFor(p.RunID)
	switch {
	case err != nil:
		return nil, err
	case rec == nil:
		return nil, errorf(codeNoRun, "no run is open on this connection: runs.start opens one")
	case len(p.Turns) == 0 || len(p.Turns) > c.g.limits.Turns:
		return nil, errorf(codeInvalidParams, "params/turns: 1 to %d turns, found %d", c.g.limits.Turns, len(p.Turns))
	}
	turns := make([]schema.TurnBody, len(p.Turns))
	now := int64(c.g.cfg.Now() - rec.zero)
	for i := range p.Turns {
		t, err := p.Turns[i].body(now)
		if err != nil {
			err.Message = errorf(0, "params/turns/%d/%s", i, err.Message).Message
			return nil, err
		}
		turns[i] = t
	}
	if !rec.enter() {
		return nil, errorf(codeRunState, "run %s is not open", rec.id)
	}
	defer rec.exit()
	for i := range turns {
		rec.blobs.trim(&turns[i])
	}
	first, failure := rec.record(turns)
	if failure != nil {
		return nil, errorf(codeNotRecorded, "the turns could not be recorded: %s", brief(failure))
	}
	c.g.count.add(func(m *Metrics) { m.Turns += uint64(len(turns)) })
	return map[string]any{"run_id": rec.id, "first_index": first, "count": len(turns)}, nil
}

func (t *reportedTurn) body(now int64) (schema.TurnBody, *rpcError) {
	b := schema.TurnBody{
		Prompt: t.Prompt, Tool: t.Tool, Parameters: rawValue(t.Parameters), Output: rawValue(t.Output),
		CLIOutcome: t.CLIOutcome, VerifierVerdict: t.VerifierVerdict, PolicyRejected: t.PolicyRejected,
		Source: "reported", ToolCallID: t.ToolCallID, TStartNS: now, TEndNS: now,
	}
	if b.VerifierVerdict == "" {
		b.VerifierVerdict = schema.VerdictNotRun
	}
	if t.TStartNS != nil || t.TEndNS != nil {
		b.Reported = &schema.ReportedTimes{TStartNS: t.TStartNS, TEndNS: t.TEndNS}
	}
	o, p := t.CLIOutcome, t.PolicyRejected
	switch v := b.VerifierVerdict; {
	case t.Tool == "" || len(t.Tool) > maxToolName || len(t.ToolCallID) > agentlog.MaxID:
		return b, errorf(codeInvalidParams, "tool: 1 to %d bytes, and a tool_call_id of at most %d", maxToolName, agentlog.MaxID)
	case v != schema.VerdictPass && v != schema.VerdictFail && v != schema.VerdictNotRun:
		return b, errorf(codeInvalidParams, "verifier_verdict: pass, fail or not_run")
	case o != nil && !(o.Kind == "exited" && o.Code != nil || o.Kind == "timeout" && o.Code == nil):
		return b, errorf(codeInvalidParams, `cli_outcome: {"kind":"exited","code":N} or {"kind":"timeout"}`)
	case p != nil && !named(p):
		return b, errorf(codeInvalidParams, "policy_rejected: a rule of 1 to %d bytes, and a param of at most so many", maxToolName)
	case p != nil && (o != nil || v != schema.VerdictNotRun || t.Output != nil):
		return b, errorf(codeInvalidParams, "policy_rejected: a rejected action has no output, no cli_outcome and the verdict not_run")
	}
	if p != nil {
		b.RejectedBy = byPolicy
	}
	return b, nil
}

// completeRun handles runs.complete.
func (c *conn) completeRun(ctx context.Context, raw jsontext.Value) (any, *rpcError) {
	var p struct {
		RunID   string `json:"run_id"`
		Outcome string `json:"outcome"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	if p.Outcome == "" || len(p.Outcome) > maxText {
		return nil, errorf(codeInvalidParams, "params/outcome: a text of 1 to %d bytes", maxText)
	}
	rec, err := c.recordingFor(p.RunID)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, errorf(codeNoRun, "no run is open on this connection: runs.start opens one")
	}
	if err := c.g.end(ctx, rec, p.Outcome); err != nil {
		return nil, err
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	res := map[string]any{"run_id": rec.id, "outcome": p.Outcome, "turns": rec.turns}
	if rec.bundle != "" {
		res["bundle"] = rec.bundle
	}
	return res, nil
}

// runInfo is one run as runs.list tells of it.
type runInfo struct {
	RunID    string `json:"run_id"`
	AgentID  string `json:"agent_id,omitempty"`
	Intent   string `json:"intent,omitempty"`
	State    string `json:"state"`
	Outcome  string `json:"outcome,omitempty"`
	Turns    uint64 `json:"turns"`
	Clients  int    `json:"clients"`
	TStartNS int64  `json:"t_start_ns"`
	TEndNS   int64  `json:"t_end_ns,omitzero"`
	Bundle   string `json:"bundle,omitempty"`
}

// listRuns handles runs.list.
func (c *conn) listRuns(raw jsontext.Value) (any, *rpcError) {
	var none struct{}
	if err := decodeParams(raw, &none); err != nil {
		return nil, err
	}
	runs := []runInfo{}
	for _, r := range c.g.recordings() {
		r.mu.Lock()
		runs = append(runs, runInfo{
			RunID: r.id, AgentID: r.start.AgentID, Intent: r.start.Intent, State: r.state, Outcome: r.outcome,
			Turns: r.turns, Clients: len(r.conns), TStartNS: int64(r.tStart), TEndNS: int64(r.tEnd), Bundle: r.bundle,
		})
		r.mu.Unlock()
	}
	return map[string]any{"runs": runs}, nil
}

// begin opens the recording for a client. r.mu is held.
func (r *recording) begin(start Start, key string, now time.Duration) {
	r.start, r.key = start, key
	r.state, r.outcome = stateOpen, ""
	r.tStart, r.tEnd = now-r.zero, 0
	r.scope.set("run", stateOpen)
}
