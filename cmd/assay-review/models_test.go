package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// modelBundle records an agent that asks a model twice and is refused once. The model proposes two calls, and the agent
// brings the result of one.
func modelBundle(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		answer := `{"type":"message","id":"msg_2","model":"claude-x","content":[],"stop_reason":"end_turn",` +
			`"usage":{"input_tokens":30,"output_tokens":4}}`
		if !strings.Contains(string(body), "tool_result") {
			answer = `{"type":"message","id":"msg_1","model":"claude-x","content":[{"type":"tool_use","id":"toolu_1",` +
				`"name":"Bash","input":{"command":"touch made"}},{"type":"tool_use","id":"toolu_2","name":"Read",` +
				`"input":{"path":"<b>x</b>"}}],"stop_reason":"tool_use","usage":{"input_tokens":11,` +
				`"cache_read_input_tokens":7,"cache_creation_input_tokens":2,"output_tokens":9}}`
		}
		_, _ = io.WriteString(w, answer)
		_ = http.NewResponseController(w).Flush()
	}))
	t.Cleanup(upstream.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return record(t, false, `set -e
ask() { curl -sS --max-time 60 -H "x-api-key: $1" -d "$2" "$ANTHROPIC_BASE_URL/v1/messages" >/dev/null; }
ask "$ANTHROPIC_API_KEY" '{"model":"claude","messages":[]}'
touch made
ask "$ANTHROPIC_API_KEY" '{"model":"claude","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1"}]}]}'
ask another '{}'
`, "--model-gateway", "--model-key", "anthropic="+key, "--model-upstream", "anthropic="+upstream.URL)
}

// says is what a subcommand prints, and what it exits with.
func says(t *testing.T, args ...string) (string, int) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code := Main(args, os.Stdin, out, out)
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data), code
}

func TestModels(t *testing.T) {
	bundle := modelBundle(t)
	holds := func(what, text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s is without %q:\n%s", what, w, text)
			}
		}
	}
	all := `model.requests == 3 && model.refused == 1 && model.input_tokens == 50 && model.output_tokens == 13 && ` +
		`model.usage_unknown == 0 && model.cost == -1.0 && model.cost_unknown == 2 && model.layer == "complete" && ` +
		`model.path == "alone" && model.bypasses == [] && model.called_not_proposed == 0`
	if out, code := says(t, "query", "--of", "runs", all, bundle); code != 0 {
		t.Errorf("query exits with %d:\n%s", code, out)
	}
	if out, code := says(t, "query", "--of", "calls", `id == "toolu_1" && model_seq == 0 && matched_by == "id"`,
		bundle); code != 0 {
		t.Errorf("query of calls exits with %d:\n%s", code, out)
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(`rules:
  - expr: {name: by-the-gateway, of: runs, always: 'model.path == "alone"'}
  - expr: {name: few-tokens, of: runs, always: 'model.input_tokens < 100'}
  - expr: {name: cheap, of: runs, always: 'model.cost < 5.0'}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := says(t, "gate", "--rules", rules, bundle)
	holds("the gate", out, "by-the-gateway", "few-tokens", "it is not known what 2 answers cost", "--model-prices")
	for _, name := range []string{"by-the-gateway", "few-tokens", "cheap"} {
		want := "pass"
		if name == "cheap" {
			want = "unknown"
		}
		line := ""
		for l := range strings.Lines(out) {
			if strings.Contains(l, name) {
				line = l
				break
			}
		}
		if !strings.Contains(strings.ToLower(line), want) {
			t.Errorf("rule %s: %q, want %s", name, line, want)
		}
	}
	out, _ = says(t, "show", bundle)
	holds("the story", out, "model claude-x, tokens: 20 input, 9 output", `proposes Bash toolu_1 with {"command":"touch`,
		"proposes Read toolu_2", "model gateway: refused POST /anthropic/v1/messages (credential)")
	page := filepath.Join(t.TempDir(), "report.html")
	if out, code := says(t, "report", "-o", page, bundle); code != 0 {
		t.Fatalf("report exits with %d:\n%s", code, out)
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "<b>x</b>") {
		t.Error("the page has an argument of a call as markup")
	}
	trace := filepath.Join(t.TempDir(), "trace.json")
	if out, code := says(t, "export", "-q", "--format", "otlp", "-o", trace, bundle); code != 0 {
		t.Fatalf("export exits with %d:\n%s", code, out)
	}
	if data, err = os.ReadFile(trace); err != nil {
		t.Fatal(err)
	}
	holds("the trace", string(data), `"chat claude"`, "gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens",
		"gen_ai.usage.cache_creation.input_tokens", "gen_ai.response.model",
		"gen_ai.provider.name", "msg_1", "SPAN_KIND_CLIENT", "assay.model_seq")
	if n := strings.Count(string(data), `"chat claude"`); n != 2 {
		t.Errorf("the trace has %d requests to models, want 2", n)
	}
}
