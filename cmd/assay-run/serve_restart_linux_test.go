package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// servedAgent is a client of serve that runs the tools it registers, but for slow, which
// never ends.
type servedAgent struct {
	t       *testing.T
	conn    net.Conn
	in      *bufio.Reader
	slow    chan struct{} // closed when slow was called
	answers chan map[string]json.RawMessage
}

func newServedAgent(t *testing.T, socket string) *servedAgent {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	a := &servedAgent{t: t, conn: conn, in: bufio.NewReader(conn), slow: make(chan struct{}),
		answers: make(chan map[string]json.RawMessage, 10)}
	go func() {
		defer close(a.answers)
		for {
			line, err := a.in.ReadBytes('\n')
			if err != nil {
				return
			}
			var m map[string]json.RawMessage
			if json.Unmarshal(line, &m) != nil || m["method"] == nil {
				a.answers <- m
				continue
			}
			if strings.Contains(string(m["params"]), `"tool":"slow"`) {
				close(a.slow)
			} else if m["id"] != nil {
				fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"result":"done"}`+"\n", m["id"])
			}
		}
	}()
	return a
}

func (a *servedAgent) send(method, params string) {
	fmt.Fprintf(a.conn, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", method, params)
}

// ask gives the result, or the error, as text.
func (a *servedAgent) ask(method, params string) string {
	a.t.Helper()
	a.send(method, params)
	select {
	case m, ok := <-a.answers:
		if !ok {
			a.t.Fatalf("%s: the connection has ended", method)
		}
		return string(m["result"]) + string(m["error"])
	case <-time.After(30 * time.Second):
		a.t.Fatalf("%s is not answered", method)
	}
	return ""
}

func (a *servedAgent) start(params string) (runID string) {
	a.t.Helper()
	var r struct {
		RunID string `json:"run_id"`
	}
	if answer := a.ask("runs.start", params); json.Unmarshal([]byte(answer), &r) != nil || r.RunID == "" {
		a.t.Fatalf("runs.start: %s", answer)
	}
	return r.RunID
}

func proposal(tool string) string {
	return fmt.Sprintf(`{"proposal":{"id":"p","actions":[{"id":"a","type":"tool_call","tool":%q,"parameters":{},"tool_call_id":%[1]q}]}}`, tool)
}

// call tells how a call ends.
func (a *servedAgent) call(tool string) string {
	a.t.Helper()
	var r struct {
		Actions []struct {
			Outcome schema.CallOutcome
		}
	}
	if answer := a.ask("proposal.submit", proposal(tool)); json.Unmarshal([]byte(answer), &r) != nil ||
		len(r.Actions) != 1 {
		a.t.Fatalf("call of %s: %s", tool, answer)
	}
	return strings.TrimSpace(r.Actions[0].Outcome.Kind + " " + r.Actions[0].Outcome.Rule)
}

const restartPolicy = `rules:
- {name: three, rule: rate_limit_tool, target: ruled, value: 3/1h}
- {name: first, rule: require_state, target: once, key: "tool:once", value: ""}
`

const restartTools = `[{"name":"ruled"},{"name":"own","rate_limit_per_min":3},{"name":"once"},{"name":"slow"},{"name":"forbidden"}]`

// TestServeGoesOnAfterARestart: open runs, keys, rules, the state of a run and rate
// limits survive the end of serve, and what was in flight is on record.
func TestServeGoesOnAfterARestart(t *testing.T) {
	layertest.Host(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			socket := filepath.Join(dir, "s")
			runs := filepath.Join(dir, "runs")
			if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(restartPolicy), 0o600); err != nil {
				t.Fatal(err)
			}
			serve := func() *exec.Cmd {
				cmd := self(t, dir, "serve", "--dir", runs, "--listen", "unix:"+socket, "--policy", "policy.yaml",
					"--grace", "5s")
				startAndRead(t, cmd, 1)
				return cmd
			}
			server := serve()
			a := newServedAgent(t, socket)
			a.ask("tools.register", restartTools)
			id := a.start(`{"agent_id":"a","intent":"work","idempotency_key":"k"}`)
			a.ask("policy.register", `{"name":"mine","rule":"deny_tool","target":"forbidden"}`)
			for _, tool := range []string{"ruled", "ruled", "own", "own", "once"} {
				if got := a.call(tool); got != "success" {
					t.Fatalf("%s: %s", tool, got)
				}
			}
			b := newServedAgent(t, socket)
			done := b.start(`{"agent_id":"a","intent":"","idempotency_key":"done"}`)
			if got := b.ask("runs.complete", `{"outcome":"success"}`); !strings.Contains(got, "bundle") {
				t.Fatal(got)
			}
			left := newServedAgent(t, socket).start(`{"agent_id":"a","intent":"","idempotency_key":"left"}`)
			a.send("proposal.submit", proposal("slow"))
			<-a.slow
			server.Process.Signal(sig)
			server.Wait()
			if sig == syscall.SIGTERM {
				for _, run := range []string{id, left} {
					if got := resultOf(t, filepath.Join(runs, "a",
						run+".tar.gz")); got.Outcome != schema.OutcomeIncomplete {
						t.Errorf("after SIGTERM the bundle says %s", got.Outcome)
					}
				}
			}

			server = serve()
			a = newServedAgent(t, socket)
			a.ask("tools.register", restartTools)
			for method, params := range map[string]string{
				"runs.start":      `{"agent_id":"a","intent":"","idempotency_key":"done"}`,
				"proposal.submit": `{"run_id":"` + done + `",` + proposal("ruled")[1:],
			} {
				if got := a.ask(method, params); !strings.Contains(got, "-32003") || !strings.Contains(got, done) ||
					!strings.Contains(got, "is completed") {
					t.Errorf("%s of a run that has ended: %s", method, got)
				}
			}
			if got := a.start(`{"agent_id":"a","intent":"","idempotency_key":"k"}`); got != id {
				t.Fatalf("the key opens %s, want %s", got, id)
			}
			var got []string
			for _, tool := range []string{"ruled", "ruled", "own", "own", "once", "forbidden"} {
				got = append(got, tool+" "+a.call(tool))
			}
			want := []string{"ruled success", "ruled policy_denied three", "own success", "own rate_limited",
				"once policy_denied first", "forbidden policy_denied mine"}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
			var trace struct{ Turns []schema.Turn }
			if err := json.Unmarshal([]byte(a.ask("runs.get_trace", "{}")), &trace); err != nil ||
				len(trace.Turns) != 12 {
				t.Errorf("%v, the trace has %d turns, want 12", err, len(trace.Turns))
			}
			if got := a.ask("runs.complete", `{"outcome":"success"}`); !strings.Contains(got, `"turns":12`) {
				t.Errorf("runs.complete: %s", got)
			}
			bundle := filepath.Join(runs, "a", id+".tar.gz")
			if out, err := exec.Command("assay-run", "verify", bundle).CombinedOutput(); err != nil {
				t.Errorf("verify: %v, %s", err, out)
			}
			if got := resultOf(t, bundle); got.Outcome != schema.OutcomeReported {
				t.Errorf("the bundle says %s", got.Outcome)
			}
			checkResumed(t, bundle)

			// Nobody came back to the other one, and serve's end does not open it again.
			for deadline := time.Now().Add(60 * time.Second); archive.Alive(filepath.Join(runs, ".spool",
				left)); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the run that nobody came back to goes on")
				}
			}
			server.Process.Signal(syscall.SIGINT)
			server.Wait()
			serve()
			c := newServedAgent(t, socket)
			for key, state := range map[string]string{"k": "completed", "done": "completed", "left": "incomplete"} {
				if got := c.ask("runs.start", `{"agent_id":"a","intent":"","idempotency_key":"`+key+
					`"}`); !strings.Contains(got, "is "+state) {
					t.Errorf("key %s: %s", key, got)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(runs, ".spool", "*")); len(left) > 0 {
				t.Errorf("spools are left: %q", left)
			}
		})
	}
}

func resultOf(t *testing.T, bundle string) (r schema.Result) {
	t.Helper()
	out, err := exec.Command("tar", "-xOf", bundle, schema.ResultPath).Output()
	if err != nil {
		t.Fatalf("%s: %v", bundle, err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// checkResumed looks at what the bundle of a run says that went on.
func checkResumed(t *testing.T, bundle string) {
	t.Helper()
	member := func(path string) []byte {
		out, err := exec.Command("tar", "-xOf", bundle, path).Output()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return out
	}
	outcomes := map[string]int{}
	for line := range strings.Lines(string(member(schema.AuditPath))) {
		e, err := schema.ParseCallEvent([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		outcomes[strings.TrimSpace(e.ToolID+" "+e.Outcome.Kind+" "+e.Outcome.Code)]++
	}
	lost := 0
	for o, n := range outcomes {
		// callback_lost, or cancelled by a serve that ended in order
		if strings.HasPrefix(o, "slow execution_failed c") {
			lost += n
		}
	}
	if outcomes["ruled success"] != 3 || outcomes["once success"] != 1 || lost != 1 {
		t.Errorf("call events: %v", outcomes)
	}
	var health schema.ObservationHealth
	if err := json.Unmarshal(member(schema.HealthPath), &health); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(health.Reasons); !strings.Contains(text, "recorder_restarted") {
		t.Errorf("the health's reasons: %s", text)
	}
	var surface schema.CapabilitySurface
	if err := json.Unmarshal(member(schema.SurfacePath), &surface); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"forbidden", "once", "own", "ruled", "slow"}, surface.MCPTools); d != "" {
		t.Errorf("tools of the surface (-want +got):\n%s", d)
	}
	var session schema.GatewaySession
	if err := json.Unmarshal(member(schema.SessionPath), &session); err != nil || session.Turns != 12 ||
		session.Intent != "work" {
		t.Errorf("session %+v", session)
	}
}
