package model

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/schema"
)

// taped is what an endpoint has recorded.
func taped(t *testing.T, g *gate) *tape.Cassette {
	t.Helper()
	g.close()
	data, err := os.ReadFile(filepath.Join(g.rec.Dir, schema.ModelPath))
	if err != nil {
		t.Fatal(err)
	}
	lines := func(yield func([]byte, error) bool) {
		for line := range bytes.Lines(data) {
			if !yield(bytes.TrimSuffix(line, []byte("\n")), nil) {
				return
			}
		}
	}
	c, err := tape.Load(lines, func(names map[string]bool) (map[string]string, error) {
		texts := map[string]string{}
		for name := range names {
			text, err := os.ReadFile(filepath.Join(g.rec.Dir, name))
			if err != nil {
				return nil, err
			}
			texts[name] = string(text)
		}
		return texts, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// replayed is an endpoint that answers from what another one has recorded.
func replayed(t *testing.T, c *tape.Cassette, strict bool) *gate {
	t.Helper()
	return newGateWith(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") },
		RecorderConfig{Replay: c}, "", func(cfg *Config) {
			cfg.Replay, cfg.ReplayStrict = c, strict
			for i := range cfg.Routes {
				cfg.Routes[i].Replayed = true
			}
		})
}

// TestReplay records answers of each kind and replays them, byte by byte.
func TestReplay(t *testing.T) {
	long := strings.Repeat("a long text ", 100)
	answers := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(429)
			tell(w, `{"error":{"type":"rate_limit_error","message":"`+long+`"}}`)
		},
		func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			tell(w, stream)
		},
		func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			tell(w, `{"id":"m","content":[{"type":"text","text":"`+long+
				`"}],"usage":{"input_tokens":5,"output_tokens":4}}`)
		},
	}
	n := 0
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) { answers[n](w); n++ })
	type answer struct {
		Status            int
		Type, After, Text string
	}
	ask := func(g *gate) (all []answer) {
		for range answers {
			res, body := g.ask(g.request("POST", "/anthropic/v1/messages",
				`{"model":"m","messages":[{"role":"user","content":"`+long+`"}]}`))
			all = append(all, answer{res.StatusCode, res.Header.Get("Content-Type"), res.Header.Get("Retry-After"),
				body})
		}
		return all
	}
	first := ask(g)
	c := taped(t, g)
	again := replayed(t, c, true)
	if d := cmp.Diff(first, ask(again)); d != "" {
		t.Errorf("answers (-recorded +replayed):\n%s", d)
	}
	res, body := again.ask(again.request("POST", "/anthropic/v1/messages", `{"model":"other"}`))
	if res.StatusCode != 400 || !strings.Contains(body, `its model is \"m\", and here \"other\"`) {
		t.Errorf("a request that was not recorded is answered with %d %s", res.StatusCode, body)
	}
	events := again.close()
	for i, e := range events[:3] {
		if e.Replayed == nil || e.Replayed.Seq != uint64(i) || e.Replayed.Drift != 0 {
			t.Errorf("line %d is replayed from %+v", i, e.Replayed)
		}
	}
	if d := cmp.Diff([]string{"", "", "", "replay_miss"}, refusals(events)); d != "" {
		t.Errorf("refused (-want +got):\n%s", d)
	}
	totals := again.record.Totals()
	if d := cmp.Diff(&schema.ModelReplay{Answers: 3, Misses: 1,
		FirstMiss: `no request of the bundle matches; line 0 comes nearest: its model is "m", and here "other"`}, totals.Replay); d != "" {
		t.Errorf("the replay (-want +got):\n%s", d)
	}
	if *totals.InputTokens != 28 || totals.Cost == nil || *totals.Cost != 0 || totals.CostUnknown != 0 {
		t.Errorf("totals are %+v", totals)
	}
	// What a replay has recorded can be replayed.
	if d := cmp.Diff(first, ask(replayed(t, taped(t, again), true))); d != "" {
		t.Errorf("answers (-recorded +replayed twice):\n%s", d)
	}
}

// TestReplayOfABrokenStream ends where the recorded stream ended.
func TestReplayOfABrokenStream(t *testing.T) {
	const part = "data: {\"type\":\"ping\"}\n\n"
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tell(w, part)
		panic(http.ErrAbortHandler)
	})
	ask := func(g *gate) string {
		res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err == nil {
			t.Error("the answer came to an end")
		}
		return string(b)
	}
	if got := ask(g); got != part {
		t.Errorf("the agent got %q", got)
	}
	again := replayed(t, taped(t, g), false)
	if got := ask(again); got != part {
		t.Errorf("the agent got %q again", got)
	}
	if e := again.one(); str(e.ErrorType) != schema.ModelErrorBroken {
		t.Errorf("the error is %q", str(e.ErrorType))
	}
}

// TestReplayChecksTheAgent: a replay checks requests as the endpoint does without one.
func TestReplayChecksTheAgent(t *testing.T) {
	g := newGate(t, streams(stream))
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"messages":[{"role":"user","content":"at 10:00"}]}`))
	c := taped(t, g)
	again := replayed(t, c, true)
	r := again.request("POST", "/anthropic/v1/messages", `{}`)
	r.Header.Set("X-Api-Key", "another")
	var got []int
	for _, r := range []*http.Request{r, again.request("POST", "/anthropic/v1/files", `{}`),
		again.request("POST", "/anthropic/v1/messages", `{"messages":[{"role":"user","content":"at 11:00"}]}`)} {
		res, _ := again.ask(r)
		got = append(got, res.StatusCode)
	}
	if !slices.Equal(got, []int{401, 403, 400}) {
		t.Errorf("answers are %v", got)
	}
	if env := again.Environ(nil, false); !slices.Contains(env, "ANTHROPIC_API_KEY="+again.Token()) {
		t.Errorf("the agent has %v", env)
	}
	again.close()
	want := &schema.ModelReplay{Misses: 1, Unused: 1,
		FirstMiss: "the request differs from line 0 of the bundle, first at /messages/0/content"}
	if d := cmp.Diff(want, again.record.Totals().Replay); d != "" {
		t.Errorf("the replay (-want +got):\n%s", d)
	}
}

// TestReplayOfAConversation records a growing conversation in which a cache mark moves. Its lines have only what is
// new, and a strict replay finds each request again.
func TestReplayOfAConversation(t *testing.T) {
	ask := func(g *gate) {
		var messages []string
		for i := range 30 {
			messages = append(messages, fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":"%d %s"}]}`, i,
				strings.Repeat("x", 300+i)))
			last := strings.Replace(messages[i], `"}]}`, `","cache_control":{"type":"ephemeral"}}]}`, 1)
			body := `{"model":"m","messages":[` + strings.Join(append(slices.Clone(messages[:i]), last), ",") + `]}`
			if res, _ := g.ask(g.request("POST", "/anthropic/v1/messages", body)); res.StatusCode != http.StatusOK {
				t.Fatalf("request %d is answered with %d", i, res.StatusCode)
			}
		}
	}
	g := newGate(t, streams(stream))
	ask(g)
	c := taped(t, g)
	bases, most := 0, 0
	for _, e := range g.close() {
		most = max(most, len(e.Request.Body))
		if e.Request.Base != nil {
			bases++
		}
	}
	if bases < 20 || most > 1500 {
		t.Errorf("%d lines have a base, and the longest body has %d bytes", bases, most)
	}
	again := replayed(t, c, true)
	ask(again)
	again.close()
	if d := cmp.Diff(&schema.ModelReplay{Answers: 30}, again.record.Totals().Replay); d != "" {
		t.Errorf("the replay (-want +got):\n%s", d)
	}
}
