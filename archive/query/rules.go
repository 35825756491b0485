package query

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/assay-run/assay-run/schema"
)

// maxRules bounds how many denials are kept to name their rules.
const maxRules = 20_000

// rulesOf reads which rule denied what from the policy layer.
func (g *gatherer) rulesOf(ctx context.Context, src Source) error {
	g.rules = map[string]string{}
	for line, err := range src.Lines(ctx, schema.PolicyPath) {
		if err != nil {
			return err
		}
		var e struct {
			Decision string `json:"decision"`
			Rule     string `json:"rule"`
			Target   string `json:"target"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: %w", schema.PolicyPath, err)
		}
		if e.Target != "" && e.Decision == "deny" && len(g.rules) < maxRules {
			g.rules[e.Target] = e.Rule
		}
	}
	return nil
}
