package gateway

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// reportedTurn is a turn as a client reports it. The recorder sets the indices and the
// identity of the line, and ignores a client's.
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

	// A turn of a trace may be sent back as it is.
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

// recordTurns handles runs.record_turns: turns that happened elsewhere, all of
// them or none.
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
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/turns: must have 1 to %d turns, found %d", c.g.cfg.Limits.Turns, len(p.Turns))
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
		Prompt: t.Prompt, Tool: t.Tool, Parameters: rawValue(t.Parameters), Output: rawValue(t.Output),
		CLIOutcome: t.CLIOutcome, VerifierVerdict: t.VerifierVerdict, PolicyRejected: t.PolicyRejected,
		Source: "reported", ToolCallID: t.ToolCallID, ClientID: t.ClientID, ProposalID: t.ProposalID, TStartNS: now, TEndNS: now,
	}
	if b.VerifierVerdict == "" {
		b.VerifierVerdict = schema.VerdictNotRun
	}
	if t.TStartNS != nil || t.TEndNS != nil {
		b.Reported = &schema.ReportedTimes{TStartNS: t.TStartNS, TEndNS: t.TEndNS}
	}
	o, p := t.CLIOutcome, t.PolicyRejected
	switch v := b.VerifierVerdict; {
	case len(t.Tool) > policy.MaxName || len(t.ToolCallID) > agentlog.MaxID:
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "tool must have at most %d bytes, tool_call_id at most %d", policy.MaxName, agentlog.MaxID)
	case len(t.ClientID) > maxIdentifier || len(t.ProposalID) > maxIdentifier:
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "client_id and proposal_id must have at most %d bytes", maxIdentifier)
	case v != schema.VerdictPass && v != schema.VerdictFail && v != schema.VerdictNotRun:
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "verifier_verdict: must be pass, fail or not_run")
	case o != nil && !(o.Kind == "exited" && o.Code != nil || o.Kind == "timeout" && o.Code == nil):
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, `cli_outcome: {"kind":"exited","code":N} or {"kind":"timeout"}`)
	case p != nil && !named(p):
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "policy_rejected: rule must have 1 to %d bytes, param at most as many", policy.MaxName)
	case p != nil && (o != nil || v != schema.VerdictNotRun || t.Output != nil):
		return b, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "policy_rejected: a rejected action must have no output, no cli_outcome, and the verdict not_run")
	}
	if p != nil {
		b.RejectedBy = byPolicy
	}
	return b, nil
}
