package gateway

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/runner/gateway/recording/recordingtest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

const scenarioPolicy = `
tools: {deny: [from_file]}
capabilities: [net.connect, fs.read]
rules:
- {name: file_rule, rule: deny_tool, target: also_from_file}
`

// TestScriptedClient drives every method and every way a call can end, with a client that shares no code with the
// server, and compares what was recorded with what the client saw.
func TestScriptedClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("the scripted client needs python3: %v", err)
	}
	file, err := policyfile.ParseYAML([]byte(scenarioPolicy))
	if err != nil {
		t.Fatal(err)
	}
	sinkFile, err := os.Create(filepath.Join(t.TempDir(), "audit.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer sinkFile.Close()
	f := start(t, func(c *Config) {
		c.Policy = file
		c.Token = "s3cret"
		c.Sinks = []Sink{NewSink("file", sinkFile)}
	})
	if _, err := f.Listen("ws", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/scenario.py")
	cmd.Env = append(os.Environ(), "RUN_ID=run_1", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(cmd.Env, f.Env()...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the scripted client failed: %v", err)
	}
	var seen struct {
		Turns   uint64
		Metrics Metrics
		Seen    []json.RawMessage
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatal(err)
	}
	f.end(t)

	turns := f.rec.Lines(t, schema.TurnsPath)
	audit := f.rec.Lines(t, schema.AuditPath)
	decisions := f.rec.Lines(t, schema.PolicyPath)
	if uint64(len(turns)) != seen.Turns || len(seen.Seen) != len(turns) {
		t.Errorf("%d turns on disk, the client counted %d and was told %d", len(turns), seen.Turns, len(seen.Seen))
	}
	kinds, codes := map[string]uint64{}, map[string]uint64{}
	for _, line := range audit {
		e, err := schema.ParseCallEvent([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Outcome.Kind]++
		switch e.Outcome.Kind {
		case schema.CallSuccess:
		case schema.CallExecutionFailed:
			codes[e.Outcome.Code]++
		default:
			codes[e.Outcome.Kind]++
		}
	}
	if d := cmp.Diff(seen.Metrics.Outcomes, kinds); d != "" {
		t.Errorf("the metrics' outcomes are not the audit layer's:\n%s", d)
	}
	if d := cmp.Diff(seen.Metrics.Errors, codes); d != "" {
		t.Errorf("the metrics' errors are not the audit layer's:\n%s", d)
	}
	for _, kind := range []string{
		schema.CallSuccess, schema.CallExecutionFailed, schema.CallInvalidArgs, schema.CallCapabilityDenied,
		schema.CallRateLimited, schema.CallToolNotFound, schema.CallPolicyDenied,
	} {
		if kinds[kind] == 0 {
			t.Errorf("no call ended as %s", kind)
		}
	}
	for _, code := range []string{schema.FailToolError, schema.FailCallbackLost, schema.FailDeadline,
		schema.FailCancelled} {
		if codes[code] == 0 {
			t.Errorf("no call failed with %s", code)
		}
	}
	if len(decisions) == 0 || strings.Contains(strings.Join(decisions, ""), "hunter2") {
		t.Error("the policy layer is empty or quotes a value")
	}
	checkTurns(t, turns)
	// What the client's own policy denied is recorded as the client's claim.
	its := func(lines []string) (source string) {
		var e struct{ Tool, Source string }
		for _, line := range lines {
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			} else if e.Tool == "unheard_of" {
				source += e.Source
			}
		}
		return source
	}
	if turn, decision := its(turns), its(decisions); turn != "reported" || decision != "proxy" {
		t.Errorf("a client's denial is told by %q as a turn, as a decision by %q", turn, decision)
	}

	// The sink has the same events.
	data, err := os.ReadFile(sinkFile.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := recordingtest.CheckLines(t, data, schema.AuditPath); len(got) != len(audit) {
		t.Errorf("the sink has %d lines, the layer %d", len(got), len(audit))
	}
	for path, id := range map[string]string{schema.PolicyFilePath: schema.PolicyV0,
		schema.SessionPath: schema.GatewaySessionV0} {
		doc, err := os.ReadFile(filepath.Join(f.rec.Dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(id, doc); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	var p schema.Policy
	readDocument(t, f.rec, schema.PolicyFilePath, &p)
	if p.Digest == nil || *p.Digest != file.Digest || len(p.Rules) != 1 || len(p.ClientRules) != 8 {
		t.Errorf("policy.json: %+v", p)
	}
	var s schema.GatewaySession
	readDocument(t, f.rec, schema.SessionPath, &s)
	if s.AgentID != "agent-7" || s.Intent != "test it" || s.State != "completed" || s.Outcome != "success" ||
		s.Turns != seen.Turns || !cmp.Equal(s.Calls, kinds) {
		t.Errorf("session.json: %+v", s)
	}
}

func readDocument(t *testing.T, r *recordingtest.Recorder, path string, into any) {
	t.Helper()
	f, err := os.Open(filepath.Join(r.Dir, path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// checkTurns checks the turns of the scenario against the rules for turns.
func checkTurns(t *testing.T, lines []string) {
	var cli []string
	verdicts := map[string]int{}
	var cut, blobs int
	for i, line := range lines {
		var turn schema.Turn
		if err := json.Unmarshal([]byte(line), &turn); err != nil {
			t.Fatal(err)
		}
		if turn.Index != uint64(i) || turn.TEndNS < turn.TStartNS || turn.TStartNS <= 0 || turn.ToolCallID == "" &&
			turn.Source == "gateway" {
			t.Errorf("turn %d: %.300s", i, line)
		}
		if len(line) > 300<<10 {
			t.Errorf("turn %d has %d bytes", i, len(line))
		}
		if (turn.PolicyRejected != nil) != (turn.RejectedBy != "") {
			t.Errorf("turn %d: %.300s", i, line)
		}
		if turn.PolicyRejected != nil &&
			(turn.Output != nil || turn.CLIOutcome != nil || turn.VerifierVerdict != schema.VerdictNotRun) {
			t.Errorf("a rejected turn that did something: %.300s", line)
		}
		if turn.Tool == "drive_cli" {
			c := "none"
			if turn.CLIOutcome != nil {
				c = turn.CLIOutcome.Kind
				if turn.CLIOutcome.Code != nil {
					c += string(rune('0' + *turn.CLIOutcome.Code))
				}
			}
			cli = append(cli, c)
			if turn.Prompt == nil || *turn.Prompt != "do it" {
				t.Errorf("a prompt is lost: %s", line)
			}
		}
		verdicts[turn.Tool+" "+turn.VerifierVerdict]++
		cut += len(turn.Cut)
		blobs += len(turn.Blobs)
	}
	if d := cmp.Diff([]string{"exited3", "timeout", "exited0", "none"}, cli); d != "" {
		t.Errorf("outcomes of drive_cli (-want +got):\n%s", d)
	}
	if verdicts["check_outcome pass"] != 1 || verdicts["check_outcome fail"] != 1 {
		t.Errorf("verdicts %v", verdicts)
	}
	if cut > 0 || blobs == 0 {
		t.Errorf("%d values cut, %d stored apart: want none and some", cut, blobs)
	}
}

// Of concurrent calls of which only the first is allowed, exactly one passes, whichever connection sends them.
func TestStateIsDecidedAtDispatch(t *testing.T) {
	f := start(t, nil)
	clients := []*tester{dial(t, f.path), dial(t, f.path)}
	for _, c := range clients {
		c.must("runs.start", `{"agent_id":"a","intent":""}`)
		c.must("tools.register", `[{"name":"once"}]`)
	}
	clients[0].must("policy.register",
		`{"name":"first","rule":"require_state","target":"once","key":"tool:once","value":""}`)
	var waiting []<-chan frame
	for range 10 {
		for _, c := range clients {
			waiting = append(waiting, c.start("proposal.submit", oneCall("once", "{}")))
		}
	}
	passed := 0
	for i, ch := range waiting {
		r, err := clients[i%2].wait(ch)
		if err != nil {
			t.Fatal(err)
		}
		if clients[0].outcome(r).Outcome.Kind == schema.CallSuccess {
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d of 20 calls passed, want 1", passed)
	}
}
