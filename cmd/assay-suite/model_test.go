//go:build linux

package main

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/schema"
)

const modelKey = "sk-ant-0123456789abcdef"

// modelAnswer is the provider's answer: 11 tokens of input and 9 of output.
const modelAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],` +
	`"stop_reason":"end_turn","usage":{"input_tokens":11,"output_tokens":9}}`

// TestTokensAndCostOfASuite has agents that ask a model once and three times, in this process and on a worker without a
// price list. The results must have tokens and cost, and a comparison must show what an attempt takes.
func TestTokensAndCostOfASuite(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != modelKey {
			t.Errorf("the provider was asked for %s with the key %q", r.URL, r.Header.Get("X-Api-Key"))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, modelAnswer)
	}))
	defer provider.Close()
	t.Setenv("ANTHROPIC_API_KEY", modelKey)
	asks := `env: [ANTHROPIC_API_KEY], model: {gateway: true, upstreams: {anthropic: "` + provider.URL +
		`"}, prices: there/prices.yaml}`
	s := newSite(t, `name: models
attempts: 2
tasks: [{name: t, command: "true"}, {name: u, command: "true"}]
agents:
- {name: once, command: sh "$HOME/ask.sh", `+asks+`}
- {name: thrice, command: 'for i in 1 2 3; do sh "$HOME/ask.sh" || exit 1; done', `+asks+`}
- {name: never, command: "true"}
`)
	s.file("ask.sh", `exec curl -sSf --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m","messages":[]}' \
	"$ANTHROPIC_BASE_URL/v1/messages"
`)
	if err := os.Mkdir(filepath.Join(s.dir, "there"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.file("there/prices.yaml", "version: 1\nmodels:\n- {model: claude-*, input: 1000, output: 2000}\n")

	if err := s.run("--jobs", "2").cmd.Wait(); err != nil {
		t.Fatalf("the suite ended with %v", err)
	}
	here := results(t, s.dir)
	if err := os.Rename(filepath.Join(s.dir, "out"), filepath.Join(s.dir, "here")); err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + ports(t, 1)[0]
	var w *process
	elsewhere(t, filepath.Join(s.dir, "there"), func() { w = s.worker("w1", "nats://"+address, "--jobs", "2") })
	if err := s.run("--jobs", "0", "--listen", address).cmd.Wait(); err != nil {
		t.Fatalf("the suite with a worker ended with %v", err)
	}
	w.end()
	s.clean("w1")
	for where, r := range map[string]*schema.SuiteResults{"here": here, "there": results(t, s.dir)} {
		for _, c := range r.Cells {
			requests := map[string]int64{"once": 2, "thrice": 6, "never": 0}[c.Agent]
			if requests == 0 {
				if c.Tokens != nil || c.Cost != nil {
					t.Errorf("%s: %s at %s has no gateway, %v tokens and the cost %v", where, c.Agent, c.Task,
						said(c.Tokens), said(c.Cost))
				}
				continue
			}
			cost := 0.029 * float64(requests)
			if c.Tokens == nil || *c.Tokens != 20*requests || c.Cost == nil || math.Abs(*c.Cost-cost) > cost/1000 {
				t.Errorf("%s: %s at %s has %v tokens and the cost %v, want %d and %v", where, c.Agent, c.Task,
					said(c.Tokens), said(c.Cost), 20*requests, cost)
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	compare := func(flags ...string) string {
		cmd := exec.Command(exe, append([]string{"compare", "here", "out"}, flags...)...)
		cmd.Args[0], cmd.Dir, cmd.Stderr = "assay-suite", s.dir, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	want := ", 20 tokens to 60 tokens, cost 0.0290 to cost 0.0870\n"
	if out := compare("--agents", "once=thrice"); !strings.Contains(out, want) {
		t.Errorf("the comparison does not say what an attempt takes:\n%s", out)
	}
	var pairs []figures.Pair
	if err := json.Unmarshal([]byte(compare("--format", "json", "--agents", "never=once")), &pairs); err != nil {
		t.Fatal(err)
	}
	if a, b := pairs[0].SpentA, pairs[0].SpentB; a.Tokens != nil || a.Cost != nil || a.Seconds == nil ||
		b.Tokens == nil || *b.Tokens != 20 {
		t.Errorf("an attempt takes %+v and %+v", a, b)
	}
}

func said[N any](n *N) any {
	if n == nil {
		return nil
	}
	return *n
}

// TestAnOutageOfTheProvider has a provider that is overloaded in the middle of a suite. No attempt fails for it.
func TestAnOutageOfTheProvider(t *testing.T) {
	layertest.Host(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	var asked sync.Map
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		_, again := asked.LoadOrStore(string(body), true)
		if !again && !strings.Contains(string(body), "m1") {
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
			return
		}
		_, _ = io.WriteString(w, modelAnswer)
	}))
	defer provider.Close()
	t.Setenv("ANTHROPIC_API_KEY", modelKey)
	s := newSite(t, `name: outage
attempts: 3
tasks: [{name: t, command: "true"}]
agents:
- {name: asks, command: sh "$HOME/ask.sh", env: [ANTHROPIC_API_KEY],
   model: {gateway: true, upstreams: {anthropic: "`+provider.URL+`"}}}
`)
	s.file("ask.sh", `ask() { curl -sSf --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" \
	-d '{"model":"m'$ASSAY_ATTEMPT'","messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"; }
ask || { [ "$ASSAY_ATTEMPT" = 3 ] && ask; }
`)
	run := s.run("--jobs", "1")
	if err := run.cmd.Wait(); err != nil {
		t.Fatalf("the suite ended with %v", err)
	}
	s.passed(3)
	classes := map[string]int{}
	for _, a := range results(t, s.dir).Attempts {
		for _, try := range a.Tries {
			classes[try.Verdict+" "+try.Class+" "+try.CausedBy]++
		}
	}
	if classes["infrastructure provider provider"] != 1 || classes["passed  "] != 3 {
		t.Errorf("the tries are %v", classes)
	}
	run.said.await(t, "t/asks/3: 1 of 2 requests to models failed on the provider's side")
}

// TestAnAgentThatProvokesItsProvider has agents that fail, and make it look like an outage: by a header of which the
// proxy makes an error, and by a model that their key may not ask. Their attempts must count as failed.
func TestAnAgentThatProvokesItsProvider(t *testing.T) {
	layertest.Host(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "forbidden") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"permission_error","message":"no"}}`)
			return
		}
		_, _ = io.WriteString(w, modelAnswer)
	}))
	defer provider.Close()
	t.Setenv("ANTHROPIC_API_KEY", modelKey)
	with := `env: [ANTHROPIC_API_KEY], model: {gateway: true, upstreams: {anthropic: "` + provider.URL + `"}}`
	s := newSite(t, `name: provoked
tasks: [{name: t, command: "true"}]
agents:
- {name: upgrades, command: 'sh "$HOME/ask.sh" m; exit 1', `+with+`}
- {name: forbidden, command: 'sh "$HOME/ask.sh" forbidden; exit 1', `+with+`}
- {name: honest, command: 'sh "$HOME/ask.sh" m', `+with+`}
`)
	s.file("ask.sh", `printf 'Connection: Upgrade\nUpgrade: \303\251\n' > header
exec curl -sSf --max-time 60 -H @header -H "x-api-key: $ANTHROPIC_API_KEY" \
	-d '{"model":"'$1'","messages":[]}' "$ANTHROPIC_BASE_URL/v1/messages"
`)
	run := s.run("--jobs", "1")
	if _ = run.cmd.Wait(); run.cmd.ProcessState.ExitCode() != suite.ExitFailed {
		t.Errorf("the suite ended with %v", run.cmd.ProcessState)
	}
	for _, a := range results(t, s.dir).Attempts {
		want := map[string]string{"upgrades": schema.SuiteFailed, "forbidden": schema.SuiteFailed,
			"honest": schema.SuitePassed}[a.Agent]
		if a.Verdict == nil || *a.Verdict != want {
			t.Errorf("%s has the verdict %v (%s), want %s", a.ID, said(a.Verdict), a.Reason, want)
		}
		provokes := slices.ContainsFunc(a.Suspicions, func(f schema.Finding) bool {
			return f.Rule == suite.RuleProvokes
		})
		if provokes != (a.Agent == "forbidden") {
			t.Errorf("%s has the suspicions %v", a.ID, a.Suspicions)
		}
	}
}
