package mcp

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// limitsRule is the rule that denies what is too large for the run's gateway.
const limitsRule = "gateway.limits"

type action struct {
	ID         string                 `json:"id"`
	Type       string                 `json:"type"`
	Tool       string                 `json:"tool"`
	ToolCallID string                 `json:"tool_call_id"`
	Parameters jsontext.Value         `json:"parameters,omitzero"`
	Denied     *schema.PolicyRejected `json:"denied,omitzero"`
	Allowed    bool                   `json:"allowed,omitzero"`
	Logged     bool                   `json:"logged,omitzero"`
}

// submit proposes a call to the run's gateway, or reports that our policy denied it. Its errors are those of send.
func (r *Run) submit(id string, c *toolCall, denied *schema.PolicyRejected) error {
	a := action{
		ID: id, Type: "tool_call", Tool: c.Name, ToolCallID: c.id, Parameters: c.Arguments,
		Denied: denied, Allowed: denied == nil, Logged: c.logged,
	}
	return r.request(id, "proposal.submit", map[string]any{
		"proposal": map[string]any{"id": id, "source": r.source, "actions": []action{a}},
	})
}

// rejected returns why the run's gateway did not execute a call.
func rejected(m *jsonrpc.Message) string {
	var failure struct {
		Message string `json:"message"`
	}
	if m.Error != nil && json.Unmarshal(m.Error, &failure) == nil {
		return failure.Message
	}
	var res struct {
		Actions []struct {
			RejectedBy string `json:"rejected_by"`
			Outcome    struct {
				Kind string `json:"kind"`
				Rule string `json:"rule"`
			} `json:"outcome"`
			Violations []policy.Violation `json:"violations"`
		} `json:"actions"`
	}
	if json.Unmarshal(m.Result, &res) != nil || len(res.Actions) != 1 {
		return "the run's gateway gave no reason"
	}
	a := res.Actions[0]
	if len(a.Violations) > 0 {
		return fmt.Sprintf("rule %q: %s", a.Violations[0].Rule, a.Violations[0].Reason)
	}
	return strings.ReplaceAll(a.Outcome.Kind, "_", " ")
}
