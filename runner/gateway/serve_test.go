package gateway

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/gateway/recording/recordingtest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// served is a gateway that opens a run for each runs.start.
type served struct {
	*Gateway
	path string
	mu   sync.Mutex
	recs map[string]*recordingtest.Recorder
}

func serveRuns(t *testing.T, edit func(*Config)) *served {
	t.Helper()
	s := &served{recs: map[string]*recordingtest.Recorder{}}
	dir, began := t.TempDir(), time.Now()
	cfg := Config{
		Now: func() time.Duration { return time.Since(began) },
		Open: func(context.Context, Start) (Recording, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			id := fmt.Sprintf("run_%d", len(s.recs))
			rec := recordingtest.New(filepath.Join(dir, id))
			s.recs[id] = rec
			return Recording{RunID: id, Recorder: rec, TurnsFile: filepath.Join(rec.Dir, schema.TurnsPath)}, nil
		},
		Seal: func(_ context.Context, r Recording, _ schema.GatewaySession) (string, error) {
			return r.RunID + ".tar.gz", nil
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Gateway = g
	if s.path, err = g.Listen("unix", ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
		for _, r := range s.recs {
			r.Close()
		}
	})
	return s
}

func (s *served) start(t *testing.T, c *tester, params string) string {
	t.Helper()
	var r struct {
		RunID string `json:"run_id"`
	}
	if err := json.Unmarshal([]byte(c.must("runs.start", params)), &r); err != nil {
		t.Fatal(err)
	}
	return r.RunID
}

// TestNoCallOutsideTheRecord: in serve a call belongs to an open run, or is not
// made.
func TestNoCallOutsideTheRecord(t *testing.T) {
	s := serveRuns(t, nil)
	c := dial(t, s.path)
	ran := 0
	c.tool = func(toolsExecute) (string, string) { ran++; return "1", "" }
	c.must("tools.register", `[{"name":"t"}]`)
	refused := func(code int, says, params string) {
		t.Helper()
		if _, err := c.call("proposal.submit", params); err == nil || err.Code != code ||
			!strings.Contains(err.Message, says) {
			t.Errorf("%v, want %d that says %s", err, code, says)
		}
	}
	refused(codeNoRun, "nothing was called", oneCall("t", "{}"))
	id := s.start(t, c, `{"agent_id":"a","intent":"","idempotency_key":"k"}`)
	if o := c.submit("t", "{}"); !o.Recorded {
		t.Errorf("%+v", o)
	}
	c.must("runs.complete", `{"outcome":"success"}`)
	refused(codeRunState, "it is completed", oneCall("t", "{}"))
	other := dial(t, s.path)
	other.must("tools.register", `[{"name":"t"}]`)
	if _, err := other.call("proposal.submit", `{"run_id":"`+id+`",`+oneCall("t", "{}")[1:]); err == nil ||
		err.Code != codeRunState {
		t.Errorf("another client on a completed run: %v", err)
	}
	if _, err := c.call("runs.start", `{"agent_id":"a","intent":"","idempotency_key":"k"}`); err == nil ||
		err.Code != codeRunState || !strings.Contains(err.Message, "idempotency_key") {
		t.Errorf("the key of a run that has ended: %v", err)
	}
	if ran != 1 {
		t.Errorf("the tool ran %d times", ran)
	}
	if n := len(s.recs[id].Lines(t, schema.AuditPath)); n != 1 || s.Metrics().Unrecorded != 0 {
		t.Errorf("%d call events, metrics %+v", n, s.Metrics())
	}
}

// TestRunsBelongToTheirAgents: a client with an agent's token may do what that agent may; a client with its own run
// may not change another's.
func TestRunsBelongToTheirAgents(t *testing.T) {
	s := serveRuns(t, func(c *Config) { c.Agents = map[string]string{"token-a": "a", "token-b": "b"} })
	url, err := s.Listen("ws", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type client func(method, params string) string
	connect := func(token string) client {
		conn, _, err := websocket.Dial(t.Context(), url+"?token="+token, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.CloseNow() })
		return func(method, params string) string {
			if err := conn.Write(t.Context(), websocket.MessageText,
				fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)); err != nil {
				t.Fatal(err)
			}
			_, answer, err := conn.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return string(answer)
		}
	}
	if _, _, err := websocket.Dial(t.Context(), url+"?token=other", nil); err == nil {
		t.Error("a token of nobody's is let in")
	}
	a, b := connect("token-a"), connect("token-b")
	if got := b("runs.start", `{"agent_id":"a","intent":""}`); !strings.Contains(got, "-32007") {
		t.Errorf("b started a run of a: %s", got)
	}
	if got := a("runs.start", `{"agent_id":"a","intent":""}`); !strings.Contains(got, "run_0") {
		t.Fatal(got)
	}
	named := `{"run_id":"run_0",`
	for method, params := range map[string]string{
		"runs.complete": named + `"outcome":"mine"}`, "runs.record_turns": named + `"turns":[{"tool":"x"}]}`,
		"runs.get_trace":  named[:len(named)-1] + `}`,
		"proposal.submit": named + oneCall("t", "{}")[1:],
	} {
		if got := b(method, params); !strings.Contains(got, "-32007") {
			t.Errorf("b did %s: %s", method, got)
		}
	}
	if got := b("runs.list", "{}"); strings.Contains(got, "run_0") {
		t.Errorf("b sees %s", got)
	}
	if got := a("runs.complete", named+`"outcome":"done"}`); !strings.Contains(got, `"turns":0`) {
		t.Errorf("a: %s", got)
	}
	// Clients without their own tokens that have a run cannot use another run.
	x, y := dial(t, s.path), dial(t, s.path)
	id := s.start(t, x, `{"agent_id":"x","intent":""}`)
	s.start(t, y, `{"agent_id":"y","intent":""}`)
	if _, err := y.call("runs.complete", `{"run_id":"`+id+`","outcome":"mine"}`); err == nil ||
		err.Code != codeNotYours {
		t.Errorf("y completed x's run: %v", err)
	}
}

// TestRateLimitsHoldAcrossConnections: of an agent's fifty calls on ten connections and as many runs, five pass, by a
// rule and by a tool's own limit.
func TestRateLimitsHoldAcrossConnections(t *testing.T) {
	file, err := policyfile.ParseYAML([]byte(
		"rules: [{name: five, rule: rate_limit_tool, target: ruled, value: 5/1h}]"))
	if err != nil {
		t.Fatal(err)
	}
	s := serveRuns(t, func(c *Config) { c.Policy = file })
	passed := map[string]int{}
	for range 10 {
		c := dial(t, s.path)
		s.start(t, c, `{"agent_id":"a","intent":""}`)
		c.must("tools.register", `[{"name":"ruled"},{"name":"own","rate_limit_per_min":5}]`)
		for range 5 {
			for _, tool := range []string{"ruled", "own"} {
				if c.submit(tool, "{}").Outcome.Kind == schema.CallSuccess {
					passed[tool]++
				}
			}
		}
	}
	c := dial(t, s.path)
	s.start(t, c, `{"agent_id":"another","intent":""}`)
	c.must("tools.register", `[{"name":"ruled"}]`)
	if o := c.submit("ruled", "{}"); o.Outcome.Kind != schema.CallSuccess {
		t.Errorf("another agent's call: %+v", o)
	}
	if passed["ruled"] != 5 || passed["own"] != 5 {
		t.Errorf("passed: %v, want 5 of each", passed)
	}
}

// A WebSocket client that answers no ping is disconnected, and leaves its run.
func TestAClientThatIsNotThereIsNoticed(t *testing.T) {
	s := serveRuns(t, func(c *Config) {
		c.Limits.PingEvery, c.Limits.Grace = 100*time.Millisecond, 100*time.Millisecond
	})
	conn := dialOver(t, s.Gateway)
	// It sends one message, and then reads nothing, as if it were stopped.
	if err := conn.Write(t.Context(), websocket.MessageText,
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"runs.start","params":{"agent_id":"a","intent":""}}`)); err != nil {
		t.Fatal(err)
	}
	watcher := dial(t, s.path)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if list := watcher.must("runs.list", "{}"); strings.Contains(list, `"state":"incomplete"`) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("the run goes on: %s", list)
		}
	}
}
