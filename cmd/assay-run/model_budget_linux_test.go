package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// modelResult is the result of a run, and its lines in the model layer.
func modelResult(t *testing.T, dir string) (*schema.Result, []schema.ModelEvent) {
	t.Helper()
	r := opened(t, dir)
	var lines []schema.ModelEvent
	layerLines(t, r, schema.ModelPath, func(line []byte) {
		var e schema.ModelEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, e)
	})
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &docs.Result, lines
}

// asksTwice asks a model twice, and prints how it was answered.
const asksTwice = `for i in 1 2; do
	curl -sS --max-time 60 -o /dev/null -w '%{http_code}\n' -H "x-api-key: $ANTHROPIC_API_KEY" \
		-d '{"model":"claude-x","stream":true,"messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"
done
`

// TestModelBudget spends 32 tokens, which are more than the budget, at a price.
func TestModelBudget(t *testing.T) {
	list := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(list, []byte("models: [{model: claude-*, input: 1, output: 10}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, cmd := modelGateway(t, provider(t), asksTwice, "--kernel", "off", "--model-budget",
		"requests=5,tokens=32,cost=1",
		"--model-prices", list)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || string(out) != "200\n400\n" {
		t.Fatalf("the agent got %q, %v\n%s", out, err, &stderr)
	}
	res, lines := modelResult(t, dir)
	if res.Outcome != schema.OutcomeExited || !slices.Equal(res.LimitsHit, []string{schema.LimitModelTokens}) {
		t.Errorf("the outcome is %s, and limits_hit %v", res.Outcome, res.LimitsHit)
	}
	if d := cmp.Diff(new(0.000113), res.Model.Cost); d != "" || res.Model.CostUnknown != 0 || len(lines) != 2 {
		t.Errorf("the cost (-want +got):\n%s\nof %+v", d, res.Model)
	}
}

// TestModelBudgetEndsTheRun has an agent that would go on, and that ends well when it is told to end.
func TestModelBudgetEndsTheRun(t *testing.T) {
	dir, cmd := modelGateway(t, provider(t), "trap 'exit 0' TERM\n"+asksTwice+"sleep 600 & wait\n", "--kernel", "off",
		"--model-budget", "requests=1", "--model-budget-end")
	out, err := cmd.Output()
	status := new(exec.ExitError)
	if !errors.As(err, &status) || status.ExitCode() != 124 {
		t.Fatalf("the run ended with %v after %q, want 124", err, out)
	}
	res, lines := modelResult(t, dir)
	if res.Outcome != schema.OutcomeLimit || !slices.Equal(res.LimitsHit, []string{schema.LimitModelRequests}) {
		t.Errorf("the outcome is %s, and limits_hit %v", res.Outcome, res.LimitsHit)
	}
	if len(lines) != 2 || lines[1].Refused == nil || *lines[1].Refused != schema.ModelRefusedBudget {
		t.Errorf("the layer has %d lines", len(lines))
	}
}

// TestModelPolicy denies tools that the provider runs, and says so in policy.json.
func TestModelPolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("model: {provider_tools: deny}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, cmd := modelGateway(t, provider(t), `curl -sS --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" \
	-d '{"model":"m","tools":[{"type":"web_search_20250305","name":"web_search"}]}' "$ANTHROPIC_BASE_URL/v1/messages"`,
		"--kernel", "off", "--policy", file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte(`declares \"web_search\"`)) {
		t.Fatalf("the agent got %q, %v\n%s", out, err, &stderr)
	}
	_, lines := modelResult(t, dir)
	if len(lines) != 1 || lines[0].Refused == nil || *lines[0].Refused != schema.ModelRefusedTools {
		t.Errorf("the layer has %d lines", len(lines))
	}
	var policy schema.Policy
	if err := json.Unmarshal(members(t, filepath.Join(dir, "run.tar.gz"))["policy.json"], &policy); err != nil ||
		policy.Model == nil || policy.Model.ProviderTools != "deny" {
		t.Errorf("policy.json says %+v of models, %v", policy.Model, err)
	}
}

// TestModelProviderFetches allows a request that makes the provider load a picture. The bundle names the host, and does
// not claim to list all hosts.
func TestModelProviderFetches(t *testing.T) {
	dir, cmd := modelGateway(t, provider(t), `curl -sSf --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" \
	-d '{"model":"m","messages":[{"role":"user","content":[{"type":"image",
	"source":{"type":"url","url":"https://pictures.example/cat.png"}}]}]}' "$ANTHROPIC_BASE_URL/v1/messages"`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	res, _ := modelResult(t, dir)
	hosts := []string{"pictures.example"}
	if m := res.Model; m == nil || m.ProviderFetches != 1 || !slices.Equal(m.FetchedHosts, hosts) {
		t.Errorf("the result says %+v", m)
	}
	if !observes() {
		t.Skip("inspect tells of fetches beside the hosts that a kernel layer has")
	}
	out, err := self(t, dir, "inspect", "run.tar.gz").Output()
	const want = "1 request let the provider of the model load, read or run something for the agent, from " +
		"pictures.example"
	if err != nil || !bytes.Contains(out, []byte(want)) || bytes.Contains(out, []byte("✓ Every host")) {
		t.Errorf("inspect does not say %q: %v\n%s", want, err, out)
	}
}
