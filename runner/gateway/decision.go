package gateway

import (
	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// recordDecision writes the policy layer's line, if the policy decided.
func (c *call) recordDecision() error {
	if !c.decided || c.run == nil {
		return nil
	}
	e := policyEvent{
		SourceEventType: agentlog.DecisionType, Source: agentlog.GatewaySource,
		ToolCallID: c.action.ToolCallID, Tool: c.action.Tool, Decision: "allow",
		TNS: int64(c.g.cfg.Now() - c.run.Zero),
	}
	if c.by == byPolicy {
		e.Decision, e.Rule = "deny", c.rule
	}
	if c.action.Denied != nil {
		e.Source = c.params.Proposal.Source
	}
	if o := c.observer(); o != nil {
		o.CallDecided(e.ToolCallID, e.Tool, e.Decision)
	}
	body, err := json.Marshal(&e)
	if err != nil {
		return err
	}
	return c.run.Decision(body)
}

// policyEvent is a [schema.PolicyEvent] without what the recorder stamps.
type policyEvent struct {
	SourceEventType string `json:"source_event_type"`
	Source          string `json:"source"`
	ToolCallID      string `json:"tool_call_id"`
	Tool            string `json:"tool"`
	Decision        string `json:"decision"`
	TNS             int64  `json:"t_ns"`
	Rule            string `json:"rule,omitempty"`
}
