package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

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
	insp, err := self(t, dir, "inspect", "--all", "run.tar.gz").CombinedOutput()
	if err != nil || !regexp.MustCompile(
		`(?s)tc_1 read_file.*! its name says that it only reads, and it\s+! wrote +\S*/hidden\n`).Match(insp) {
		t.Errorf("a hidden write does not stand out: %v\n%s", err, insp)
	}
	if !regexp.MustCompile(`(?s)while no call was open.*wrote +\S*/(after|before|between)\n`).Match(insp) {
		t.Errorf("what no call did is not listed:\n%s", insp)
	}
	if s := session(t, dir); s.State != "completed" || s.Turns != 2 {
		t.Errorf("session.json: %+v", s)
	}
}

// TestHundredOverlappingCallsOfTheGateway: what each call's processes do is
// bound to it, and to no other, by its cgroup or by the environment.
func TestHundredOverlappingCallsOfTheGateway(t *testing.T) {
	layertest.Host(t)
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	_, r, _ := agent(t, []string{"--kernel", "require", "--kernel-buffer", "32M"}, "overlap")
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
		if err := json.Unmarshal(line, &turn); err != nil || turn.Prompt == nil || turn.CLIOutcome == nil ||
			*turn.CLIOutcome.Code != 0 {
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
	_, r, _ := agent(t, []string{"--agent-shim", "openai-agents", "--sdk-event-log", "sdk.ndjson",
		"--policy-decision-log", "policy.ndjson"}, "logs")
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
