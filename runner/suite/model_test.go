//go:build linux

package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// TestATaskSaysMoreOfModelsThanItsAgent loads a file in which both the task and the agent have model settings.
func TestATaskSaysMoreOfModelsThanItsAgent(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("key", "sk-0123456789")
	text := `name: s
tasks:
- {name: one, prompt: p, model: {budget: {requests: 3}, bodies: none}}
- {name: two, prompt: p}
agents:
- name: a
  command: "true"
  model: {gateway: true, keys: {anthropic: key}, budget: {requests: 9, tokens: 100}}
`
	f, err := Load(put("suite.yaml", text), nil)
	if err != nil {
		t.Fatal(err)
	}
	one, two := f.model(&f.Tasks[0], &f.Agents[0]), f.model(&f.Tasks[1], &f.Agents[0])
	if !one.Gateway || one.Bodies != schema.ModelBodiesNone || one.Budget.Requests != 3 || one.Budget.Tokens != 100 {
		t.Errorf("with the task's words it is %+v", one)
	}
	if !two.Gateway || two.Budget.Requests != 9 || filepath.Base(two.Keys["anthropic"]) != "key" ||
		!filepath.IsAbs(two.Keys["anthropic"]) {
		t.Errorf("with the agent's words alone it is %+v", two)
	}
	// Another key leaves the attempt's identity as it is; another budget changes it.
	identity := func(text string) string {
		f, err := Load(put("suite.yaml", text), nil)
		if err != nil {
			t.Fatal(err)
		}
		asks, err := f.Describe()
		if err != nil {
			t.Fatal(err)
		}
		return asks.Identities[Attempt{Task: "two", Agent: "a", Attempt: 1}]
	}
	before := identity(text)
	put("key", "sk-9876543210")
	if identity(text) != before {
		t.Error("another key made another attempt")
	}
	if identity(strings.Replace(text, "requests: 9", "requests: 8", 1)) == before {
		t.Error("another budget made the same attempt")
	}
	for what, c := range map[string]struct{ from, to string }{
		"has no key for a":     {"keys: {anthropic: key}, ", ""},
		"no such file":         {"anthropic: key", "anthropic: nothing"},
		"need --model-gateway": {"gateway: true, ", ""},
		`key for "nobody"`:     {"anthropic: key", "nobody: key"},
	} {
		_, err := Load(put("suite.yaml", strings.Replace(text, c.from, c.to, 1)), nil)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error with %q, got %v", what, err)
		}
	}
}

// TestTokensAndCostAreKnownOrNull expects null rather than a sum that lacks a part.
func TestTokensAndCostAreKnownOrNull(t *testing.T) {
	all := schema.ModelTotals{ModelUsage: schema.ModelUsage{InputTokens: new(int64(5)), OutputTokens: new(int64(7))},
		Cost: new(0.25)}
	if tokens, cost := used(&all); tokens == nil || *tokens != 12 || cost == nil || *cost != 0.25 {
		t.Errorf("it is %v and %v", tokens, cost)
	}
	unsaid := all
	unsaid.UsageUnknown, unsaid.CostUnknown = 1, 1
	for _, m := range []*schema.ModelTotals{nil, {}, &unsaid} {
		if tokens, cost := used(m); tokens != nil || cost != nil {
			t.Errorf("of %+v it is %v and %v", m, tokens, cost)
		}
	}
	var s sums
	s.add(new(1.0), new(int64(2)), nil)
	s.add(new(2.0), nil, new(1.0))
	if s.seconds == nil || *s.seconds != 3 || s.tokens != nil || s.cost != nil {
		t.Errorf("the sums are %v, %v, %v", s.seconds, s.tokens, s.cost)
	}
	s.add(nil, new(int64(2)), nil)
	if s.seconds != nil || s.tokens != nil {
		t.Errorf("then they are %v, %v", s.seconds, s.tokens)
	}
}
