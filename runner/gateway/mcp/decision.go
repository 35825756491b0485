package mcp

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// decision is a line of the decision log: a CloudEvent.
type decision struct {
	SpecVersion string       `json:"specversion"`
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Source      string       `json:"source"`
	Time        string       `json:"time"`
	Data        decisionData `json:"data"`
}

type decisionData struct {
	Tool       string `json:"tool"`
	ToolCallID string `json:"tool_call_id"`
	Decision   string `json:"decision"` // allow or deny
	Rule       string `json:"rule,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// logDecision writes a call's decision in one write.
func (p *Proxy) logDecision(c *toolCall, found []policy.Violation) error {
	if p.cfg.Decisions == nil {
		return nil
	}
	d := decision{
		SpecVersion: "1.0", ID: schema.NewID(), Type: "assay.tool.decision", Source: p.cfg.Source,
		Time: time.Now().UTC().Format(time.RFC3339Nano),
		Data: decisionData{Tool: c.Name, ToolCallID: c.id, Decision: "allow"},
	}
	if len(found) > 0 {
		d.Data.Decision, d.Data.Rule, d.Data.Reason = "deny", found[0].Rule, found[0].Reason
	}
	line, err := json.Marshal(&d)
	if err == nil {
		_, err = p.cfg.Decisions.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write a line of the decision log: %w", err)
	}
	c.logged = p.cfg.Logged
	return nil
}
