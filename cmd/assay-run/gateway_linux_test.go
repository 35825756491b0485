package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// underRun is a scripted client's command under assay-run, which writes its
// bundle to run.tar.gz in dir.
func underRun(t *testing.T, dir string, flags []string, script string, args ...string) *exec.Cmd {
	t.Helper()
	client := pythonClient(t, script, args...)
	args = append(append([]string{"-q", "-o", "run.tar.gz"}, flags...), "--")
	cmd := self(t, dir, append(args, client.Args...)...)
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[slices.Index(cmd.Args, client.Args[1])] = script
	cmd.Env = append(client.Env, "XDG_STATE_HOME="+filepath.Join(dir, ".state"))
	return cmd
}

// opened is the verified bundle of a run in dir.
func opened(t *testing.T, dir string) *archive.Reader {
	t.Helper()
	path := filepath.Join(dir, "run.tar.gz")
	verifyBundle(t, path, 0)
	r, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// nameServiceCache is where glibc asks first for who a user is, as python does
// where HOME is not set.
const nameServiceCache = "unix:/var/run/nscd/socket"

func layerLines(t *testing.T, r *archive.Reader, layer string, f func(line []byte)) (n uint64) {
	t.Helper()
	for line, err := range r.Lines(context.Background(), layer) {
		if err != nil {
			t.Fatal(err)
		}
		f(line)
		n++
	}
	return n
}

// TestScriptedClientInARun drives every method and every rejection from inside
// a run, with a client that shares no code with the gateway, and holds the
// bundle against what the client saw.
func TestScriptedClientInARun(t *testing.T) {
	dir := t.TempDir()
	rules := `
tools: {deny: [from_file]}
capabilities: [net.connect, fs.read]
rules:
- {name: file_rule, rule: deny_tool, target: also_from_file}
`
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := underRun(t, dir, []string{"--run-id", "run_1", "--gateway", "ws", "--policy", "policy.yaml", "--env", "RUN_ID=run_1"},
		"../../runner/gateway/testdata/scenario.py")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Turns   uint64
		Metrics struct {
			Calls    uint64
			Outcomes map[string]uint64
		}
		Seen []any
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatal(err)
	}
	r := opened(t, dir)
	i := 0
	layerLines(t, r, schema.TurnsPath, func(line []byte) {
		var turn any
		if err := json.Unmarshal(line, &turn); err != nil {
			t.Fatal(err)
		}
		if i < len(seen.Seen) && !cmp.Equal(turn, seen.Seen[i]) {
			t.Errorf("turn %d is not what the client was told: %.300s", i, line)
		}
		i++
	})
	if uint64(i) != seen.Turns {
		t.Errorf("%d turns, the client counted %d", i, seen.Turns)
	}
	kinds := map[string]uint64{}
	audits := layerLines(t, r, schema.AuditPath, func(line []byte) {
		e, err := schema.ParseCallEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Outcome.Kind]++
	})
	if d := cmp.Diff(seen.Metrics.Outcomes, kinds); d != "" || audits != seen.Metrics.Calls {
		t.Errorf("%d call events, the metrics said %d (-metrics +layer):\n%s", audits, seen.Metrics.Calls, d)
	}
	decisions := map[string]bool{}
	policies := layerLines(t, r, schema.PolicyPath, func(line []byte) {
		var e schema.PolicyEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		decisions[e.Decision+":"+e.Tool] = true
	})
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := docs.Health
	for layer, n := range map[string]uint64{"turns": seen.Turns, "audit": audits, "policy": policies} {
		if h.Layers[layer].Written != n || n == 0 {
			t.Errorf("health counts %+v in layer %s, there are %d", h.Layers[layer], layer, n)
		}
	}
	if h.PolicyLayer != schema.Present || len(decisions) == 0 {
		t.Errorf("the policy layer is %s with %d decisions", h.PolicyLayer, policies)
	}
	for _, d := range docs.Surface.PolicyDecisions {
		if _, tool, _ := strings.Cut(d, ":"); !decisions[d] || !slices.Contains(docs.Surface.MCPTools, tool) {
			t.Errorf("the capability surface has %s, which is not among %v of %v", d, decisions, docs.Surface.MCPTools)
		}
	}
	if len(docs.Surface.PolicyDecisions) != len(decisions) {
		t.Errorf("the capability surface has %d decisions, the layer %d", len(docs.Surface.PolicyDecisions), len(decisions))
	}
	for _, e := range docs.Surface.NetworkEndpoints {
		if e != nameServiceCache {
			t.Errorf("the way to the gateway is taken for the agent's: %s", e)
		}
	}
	// A call that was allowed and then not dispatched is not one that ran
	// unseen, and none is open for ever.
	for _, a := range docs.Correlation.Ambiguities {
		if strings.HasPrefix(a, schema.AmbiguousNeverEnded) {
			t.Error(a)
		}
	}
}

// agent runs one of the agents of testdata/agent.py in a fresh directory, and
// gives that, its bundle and what it said.
func agent(t *testing.T, flags []string, args ...string) (dir string, r *archive.Reader, out []byte) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := underRun(t, dir, flags, "testdata/agent.py", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	return dir, opened(t, dir), out
}

func session(t *testing.T, dir string) (s schema.GatewaySession) {
	t.Helper()
	data, err := exec.Command("tar", "-xOf", filepath.Join(dir, "run.tar.gz"), schema.SessionPath).Output()
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		t.Fatalf("session.json: %v", err)
	}
	return s
}

func TestHiddenWriteBesideACallOfTheGateway(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	dir, r, _ := agent(t, []string{"--kernel", "require"}, "hidden")
	bound := map[string]string{}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		if e.Kind == schema.KindOpen && filepath.Dir(e.Value) == dir {
			bound[filepath.Base(e.Value)] = e.ToolCallID + " " + e.BoundBy
		}
	})
	want := map[string]string{"before": " ", "hidden": "tc_1 window", "in": "tc_1 window", "between": " ", "after": " "}
	if d := cmp.Diff(want, bound); d != "" {
		t.Errorf("files opened, and the calls they are bound to (-want +got):\n%s", d)
	}
	insp, err := self(t, dir, "inspect", "run.tar.gz").CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?s)tc_1 read_file.*! its name says that it only reads, and it\s+! wrote +\S*/hidden\n`).Match(insp) {
		t.Errorf("a hidden write does not stand out: %v\n%s", err, insp)
	}
	if !regexp.MustCompile(`(?s)while no call was open.*wrote +\S*/(after|before|between)\n`).Match(insp) {
		t.Errorf("what no call did is not listed:\n%s", insp)
	}
	if s := session(t, dir); s.State != "completed" || s.Turns != 2 {
		t.Errorf("session.json: %+v", s)
	}
}

func TestAClientThatVanishesLeavesARunIncomplete(t *testing.T) {
	dir, r, _ := agent(t, nil, "vanish")
	if s := session(t, dir); s.State != "incomplete" || s.Outcome != "" || s.Turns != 3 || s.Calls["success"] != 2 {
		t.Errorf("session.json: %+v", s)
	}
	if n := layerLines(t, r, schema.TurnsPath, func([]byte) {}); n != 3 {
		t.Errorf("%d turns", n)
	}
}

// TestHundredOverlappingCallsOfTheGateway: what each call's processes do is
// bound to it, and to no other, by its cgroup or by the environment.
func TestHundredOverlappingCallsOfTheGateway(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	_, r, _ := agent(t, []string{"--kernel", "require"}, "overlap")
	named := regexp.MustCompile(`/(?:file|out|made|copy)-([0-9]+)-$`)
	events, calls := 0, map[string]bool{}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		m := named.FindStringSubmatch(e.Value)
		if m == nil || e.Writes() && strings.Contains(e.Value, "/file-") { // those the agent makes itself
			return
		}
		events++
		calls[m[1]] = true
		i, _ := strconv.Atoi(m[1])
		by := []string{"env", "cgroup"}[i%2]
		if e.ToolCallID != "call-"+m[1] || e.BoundBy != by && !(by == "env" && e.BoundBy == "lineage") {
			t.Errorf("%s of %s is bound to %q by %q", e.Kind, e.Value, e.ToolCallID, e.BoundBy)
		}
	})
	if len(calls) != 100 || events < 800 {
		t.Errorf("%d events of %d calls", events, len(calls))
	}
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := docs.Correlation; len(c.Bindings) != 100 || c.Status != schema.Clean || len(c.ReportedNotObserved) > 0 {
		t.Errorf("%d bindings, status %s, ambiguities %v", len(c.Bindings), c.Status, c.Ambiguities)
	}
	n := layerLines(t, r, schema.TurnsPath, func(line []byte) {
		var turn schema.Turn
		if err := json.Unmarshal(line, &turn); err != nil || turn.Prompt == nil || turn.CLIOutcome == nil || *turn.CLIOutcome.Code != 0 {
			t.Errorf("%v: %s", err, line)
		}
	})
	if n != 100 {
		t.Errorf("%d turns", n)
	}
}

// TestLogsAndGatewayShareAClock: what came by a log and what came by the socket
// is ordered by one clock.
func TestLogsAndGatewayShareAClock(t *testing.T) {
	_, r, _ := agent(t, []string{"--agent-shim", "openai-agents", "--sdk-event-log", "sdk.ndjson", "--policy-decision-log", "policy.ndjson"}, "logs")
	type span struct{ started, logged, decided, turnStart, turnEnd, completed int64 }
	calls := map[string]*span{}
	get := func(id string) *span {
		if calls[id] == nil {
			calls[id] = &span{}
		}
		return calls[id]
	}
	decode := func(line []byte, into any) {
		if err := json.Unmarshal(line, into); err != nil {
			t.Fatal(err)
		}
	}
	layerLines(t, r, schema.SDKPath, func(line []byte) {
		var e schema.SDKEvent
		switch decode(line, &e); e.EventType {
		case "tool_call_started":
			get(e.ToolCallID).started = e.TNS
		case "tool_call_completed":
			get(e.ToolCallID).completed = e.TNS
		}
	})
	layerLines(t, r, schema.PolicyPath, func(line []byte) {
		var e schema.PolicyEvent
		if decode(line, &e); e.Source == "log" {
			get(e.ToolCallID).logged = e.TNS
		} else {
			get(e.ToolCallID).decided = e.TNS
		}
	})
	layerLines(t, r, schema.TurnsPath, func(line []byte) {
		var turn schema.Turn
		decode(line, &turn)
		get(turn.ToolCallID).turnStart, get(turn.ToolCallID).turnEnd = turn.TStartNS, turn.TEndNS
	})
	if len(calls) != 20 {
		t.Errorf("%d calls", len(calls))
	}
	for id, c := range calls {
		order := []int64{1, c.started, c.turnStart, c.decided, c.turnEnd, c.completed}
		if !slices.IsSorted(order) || c.logged == 0 || c.logged > c.turnStart {
			t.Errorf("%s: %+v", id, *c)
		}
	}
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := docs.Correlation; len(c.Bindings) != 20 || len(c.Ambiguities) > 0 && observes() {
		t.Errorf("%d bindings, ambiguities %v", len(c.Bindings), c.Ambiguities)
	}
}

// TestFloodsUnderARun: whatever a client sends, each of its calls is answered
// and recorded once, and the runner's memory is bounded.
func TestFloodsUnderARun(t *testing.T) {
	count := 100_000
	if testing.Short() {
		count = 10_000
	}
	for _, c := range []struct {
		name  string
		count int
		args  []string
		most  int // MiB
	}{
		{"calls that are answered", count, []string{"0"}, 256},
		{"callbacks that are never answered", count, []string{"0", "50"}, 256},
		{"calls of 64 KiB that are never answered", count / 10, []string{"65536", "1000"}, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			_, r, out := agent(t, []string{"--kernel", "off"}, append([]string{"flood", strconv.Itoa(c.count)}, c.args...)...)
			var said struct {
				Kinds map[string]uint64
				Peak  int
			}
			if err := json.Unmarshal(out, &said); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%v, %d MiB, %v", said.Kinds, said.Peak, time.Since(began))
			if said.Peak > c.most {
				t.Errorf("the runner had %d MiB", said.Peak)
			}
			kinds := map[string]uint64{}
			n := layerLines(t, r, schema.AuditPath, func(line []byte) {
				e, err := schema.ParseCallEvent(line)
				if err != nil {
					t.Fatal(err)
				}
				kinds[e.Outcome.Kind]++
			})
			if d := cmp.Diff(kinds, said.Kinds); d != "" || n != uint64(c.count) {
				t.Errorf("%d call events (-layer +answers):\n%s", n, d)
			}
			if turns := layerLines(t, r, schema.TurnsPath, func([]byte) {}); turns != uint64(c.count) {
				t.Errorf("%d turns", turns)
			}
		})
	}
}

// TestHalfMessagesUnderARun: clients that stop in the middle of a message keep
// no other out for long, cost no memory to speak of, and do not hold up the end.
func TestHalfMessagesUnderARun(t *testing.T) {
	began := time.Now()
	_, _, out := agent(t, []string{"--kernel", "off"}, "halves")
	var said struct{ Refused, Full, Peak int }
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%+v, %v", said, time.Since(began))
	if said.Full < 100 || said.Peak > 400 {
		t.Errorf("%d were told that there is no room, the runner had %d MiB", said.Full, said.Peak)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
