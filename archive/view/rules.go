package view

import (
	"context"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// maxRules bounds how many denials are kept to name their rules.
const maxRules = 20_000

// policies reads from the policy layer which rule denied what, and which tool calls.
func (g *gatherer) policies(ctx context.Context, src Source) error {
	g.rules = map[string]string{}
	for it, err := range src.Items(ctx, schema.PolicyPath) {
		if err != nil {
			return err
		}
		e := it.Policy
		switch {
		case !schema.Denies(e.Decision):
		case e.Target == "":
			g.deniedCall(e.Tool, e.Decision, e.Rule)
		case len(g.rules) < maxRules:
			g.rules[e.Target] = e.Rule
		}
	}
	return nil
}

// deniedCall notes a tool call that a policy denied.
func (g *gatherer) deniedCall(tool, decision, rule string) {
	f := g.denied.at(strings.Join([]string{ToolCall, tool, decision, rule}, "\x00"), 1)
	if f == nil {
		return
	}
	f.Kind, f.Value, f.Result, f.Rule = ToolCall, tool, decision, rule
	f.Count++
}
