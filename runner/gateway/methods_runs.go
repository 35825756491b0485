package gateway

import (
	"errors"
	"regexp"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/schema"
)

// agentName is what may name an agent: it becomes a folder.
var agentName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
})

// maxText bounds an intent, a description or an outcome, in bytes.
const maxText = 16 << 10

// startRun handles runs.start: it opens a recording, or finds the one that the
// same idempotency key opened before.
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
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/agent_id: must be 1 to 128 letters, digits, '.', '_' or '-', and not begin with '.' or '-'")
	case len(p.Intent) > maxText || len(p.OutcomeDescription) > maxText || len(p.IdempotencyKey) > maxIdentifier:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params: a text must have at most %d bytes, an idempotency_key at most %d", maxText, maxIdentifier)
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

// maxReport bounds an outcome's object, in bytes.
const maxReport = 64 << 10

// parseOutcome reads an outcome: a word, or an object whose status is the word.
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

// runInfo is one run in the answer of runs.list.
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
			RunID: run.ID, AgentID: i.AgentID, Intent: i.Intent, Expects: i.OutcomeDescription, State: i.State, Outcome: i.Outcome,
			Turns: i.Turns, Clients: i.Clients, TStartNS: int64(i.TStart), TEndNS: int64(i.TEnd), Bundle: i.Bundle,
		})
	}
	return map[string]any{"runs": runs}, nil
}
