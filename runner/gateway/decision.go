package gateway

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/policy"
)

// recordDecisions writes a line of the policy layer for each decision about the call, before
// it is dispatched: the client's, unless it is in a log that the run reads, and the gateway's.
func (c *call) recordDecisions() error {
	if c.run == nil {
		return nil
	}
	var clients, own error
	if d := c.action.decision(); d != "" && !c.action.Logged {
		rule := ""
		if c.action.Denied != nil {
			rule = c.action.Denied.Rule
		}
		clients = c.recordDecision(c.params.Proposal.Source, d, rule)
	}
	switch {
	case !c.checked:
	case !c.decides():
		c.tell("")
	case c.by == byPolicy:
		own = c.recordDecision(agentlog.GatewaySource, "deny", c.rule)
	default:
		own = c.recordDecision(agentlog.GatewaySource, "allow", "")
	}
	return cmp.Or(clients, own)
}

// decides reports whether the gateway decides: it has a policy, or nobody else has one.
func (c *call) decides() bool {
	return c.action.decision() == "" || slices.ContainsFunc(c.rules, (*policy.Set).Decides)
}

// recordDecision records a decision.
func (c *call) recordDecision(source, decision, rule string) error {
	c.tell(decision)
	body, err := json.Marshal(&policyEvent{
		SourceEventType: agentlog.DecisionType, Source: source, ToolCallID: c.action.ToolCallID, Tool: c.action.Tool,
		Decision: decision, TNS: int64(c.g.cfg.Now() - c.run.Zero), Rule: rule,
	})
	if err != nil {
		return err
	}
	return c.run.Decision(body)
}

// tell informs the observer of a decision.
func (c *call) tell(decision string) {
	if o := c.observer(); o != nil {
		o.CallDecided(c.action.ToolCallID, c.action.Tool, decision)
	}
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
