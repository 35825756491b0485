package binding_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// modelScene is a scene with a model gateway.
func modelScene(opens bool, unsettled func(int64) bool) scene {
	o := binding.Options{}
	if !opens {
		o = binding.Options{Known: func(int64) bool { return true }, SDK: true}
	}
	s := scene{binding.New(o)}
	if unsettled == nil {
		unsettled = func(int64) bool { return false }
	}
	s.Model(binding.Model{Known: func(int64) {}, Unsettled: unsettled, Opens: opens})
	return s
}

// propose has a line of the model layer propose a call.
func (s scene) propose(id, tool, args string, at int64, seq uint64) {
	s.Recorded(s.Proposed(id, tool, []byte(args), at), seq)
}

func findBinding(t *testing.T, r *schema.CorrelationReport, id string) schema.Binding {
	t.Helper()
	for _, b := range r.Bindings {
		if b.ToolCallID == id {
			return b
		}
	}
	t.Fatalf("no binding of %s in %+v", id, r.Bindings)
	return schema.Binding{}
}

func TestTheGatewayTellsTheWindow(t *testing.T) {
	s := modelScene(true, nil)
	s.open("/w/before", 1, 5)
	s.propose("a", "Bash", `{"command":"ls"}`, 10, 3)
	during := s.open("/w/during", 1, 20)
	s.Answered("a", "", false, 30)
	after := s.open("/w/after", 1, 40)
	if during.ToolCallID != "a" || during.BoundBy != schema.BoundByWindow || after.ToolCallID != "" {
		t.Errorf("bound: during to %q by %q, after to %q", during.ToolCallID, during.BoundBy, after.ToolCallID)
	}
	r := s.report(binding.Facts{})
	b := findBinding(t, r, "a")
	if b.Tool != "Bash" || *b.ModelSeq != 3 || b.MatchedBy != "id" || *b.TStartNS != 10 || *b.TEndNS != 30 ||
		b.KernelEventCount != 1 {
		t.Errorf("binding: %+v", b)
	}
	if r.Status != schema.Clean || len(r.ProposedNotCalled)+len(r.CalledNotProposed)+len(r.ReportedNotObserved) > 0 {
		t.Errorf("report: %+v", r)
	}
}

func TestOverlappingProposalsStayOverlaps(t *testing.T) {
	s := modelScene(true, nil)
	s.propose("a", "Bash", `{}`, 10, 0)
	s.propose("b", "Bash", `{}`, 11, 0)
	if e := s.open("/w/f", 1, 20); e.ToolCallID != "" {
		t.Errorf("bound to %s", e.ToolCallID)
	}
	s.Answered("a", "", false, 30)
	s.Answered("b", "", false, 30)
	r := s.report(binding.Facts{})
	if r.Status != schema.Partial || len(r.ObservedNotReported) != 1 || r.ObservedNotReported[0].Code != "overlap" {
		t.Errorf("report: %+v", r)
	}
}

func TestCallsWithoutIDsAreAnsweredInOrder(t *testing.T) {
	s := modelScene(true, nil)
	s.propose("", "read", `{"path":"a"}`, 10, 0)
	s.Answered("", "read", false, 20)
	s.propose("", "read", `{"path":"b"}`, 30, 1)
	s.open("/w/f", 0, 35)
	s.Answered("read_1700000000_0", "read", false, 40) // the agent's own id for it
	r := s.report(binding.Facts{})
	if len(r.Bindings) != 2 || r.Bindings[1].KernelEventCount != 1 || *r.Bindings[1].TEndNS != 40 {
		t.Fatalf("bindings: %+v", r.Bindings)
	}
	for i, b := range r.Bindings {
		if b.ModelSeq == nil || *b.ModelSeq != uint64(i) || b.MatchedBy != schema.MatchedByID {
			t.Errorf("the proposal of call %d: %+v", i, b)
		}
	}
}

// TestAnswersThatHaveNotEnded has an event while it is not known yet what the answer proposes.
func TestAnswersThatHaveNotEnded(t *testing.T) {
	flying := true
	s := modelScene(true, func(int64) bool { return flying })
	s.propose("a", "Bash", `{}`, 10, 0)
	if e := s.open("/w/f", 1, 20); e.ToolCallID != "" {
		t.Errorf("bound to %s", e.ToolCallID)
	}
	s.propose("b", "Bash", `{}`, 15, 1)
	flying = false
	r := s.report(binding.Facts{})
	if len(r.ObservedNotReported) != 1 || r.ObservedNotReported[0].Code != "overlap" {
		t.Errorf("report: %+v", r)
	}
}

// TestWhatOthersSayIsStronger has a call of the runner's own gateway inside a call that a model proposed.
func TestWhatOthersSayIsStronger(t *testing.T) {
	s := modelScene(true, nil)
	s.propose("toolu_1", "mcp__files__write", `{"path": "a"}`, 10, 4)
	s.Decided("call_1", "write", "")
	s.Begin("call_1", "write", 0, func() int64 { return 20 })
	s.Arguments("call_1", []byte(`{"path":"a"}`))
	e := s.open("/w/a", 1, 25)
	s.End("call_1", func() int64 { return 30 })
	s.Answered("toolu_1", "", false, 40)
	if e.ToolCallID != "call_1" {
		t.Errorf("bound to %q", e.ToolCallID)
	}
	r := s.report(binding.Facts{})
	if b := findBinding(t, r, "call_1"); b.MatchedBy != "arguments" || *b.ModelSeq != 4 || len(r.Bindings) != 1 {
		t.Errorf("bindings: %+v", r.Bindings)
	}
}

func TestProposalsAndCallsOfAShim(t *testing.T) {
	s := modelScene(false, nil)
	s.propose("a", "Bash", `{"command":"ls", "n": 1.0}`, 10, 0)
	s.propose("b", "Bash", `{"command":"rm"}`, 10, 0)
	s.propose("c", "Read", `{"path":"x"}`, 10, 1)
	s.propose("d", "shell", `{"command":["bash","-lc","make"]}`, 10, 2)
	s.propose("e", "exec_command", `{"cmd":"make test"}`, 10, 3)
	s.start("a", "Bash", 11, 12)
	s.Arguments("a", []byte(`{"n":1,"command":"ls"}`))
	s.end("a", "Bash", 13, 14)
	s.start("b", "Bash", 15, 16)
	s.Arguments("b", []byte(`{"command":"rm -r /"}`))
	s.end("b", "Bash", 17, 18)
	s.start("z", "Write", 19, 20)
	s.end("z", "Write", 21, 22)
	for i, argv := range [][]string{{"bash", "-lc", "make"}, {"/bin/sh", "-c", "make test"}} {
		at := int64(30 + 10*i)
		id := []string{"item_0", "item_1"}[i]
		s.SDK(&schema.SDKEvent{EventType: agentlog.ToolCallStarted, ToolCallID: id, Tool: "command", Argv: argv},
			agentlog.Arrival{After: at, At: at + 1})
		s.end(id, "command", at+2, at+3)
	}
	r := s.report(binding.Facts{})
	got := map[string]string{}
	for _, b := range r.Bindings {
		got[b.ToolCallID] = b.MatchedBy
	}
	want := map[string]string{"a": "id", "b": "id", "z": "", "item_0": "arguments", "item_1": "arguments"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("bindings (-want +got):\n%s", d)
	}
	type list = []schema.Proposal
	if d := cmp.Diff(list{{ToolCallID: "b", Tool: "Bash", ModelSeq: new(uint64(0))}}, r.ArgumentsDiffer); d != "" {
		t.Errorf("arguments_differ (-want +got):\n%s", d)
	}
	if d := cmp.Diff(list{{ToolCallID: "c", Tool: "Read", ModelSeq: new(uint64(1))}}, r.ProposedNotCalled); d != "" {
		t.Errorf("proposed_not_called (-want +got):\n%s", d)
	}
	if d := cmp.Diff(list{{ToolCallID: "z", Tool: "Write"}}, r.CalledNotProposed); d != "" {
		t.Errorf("called_not_proposed (-want +got):\n%s", d)
	}
}

// TestEqualCallsAreMatchedInOrder has an agent with its own call ids.
func TestEqualCallsAreMatchedInOrder(t *testing.T) {
	s := modelScene(false, nil)
	s.propose("m1", "read", `{"path":"x"}`, 10, 0)
	s.propose("m2", "read", `{"path":"x"}`, 20, 1)
	for i, id := range []string{"g1", "g2"} {
		s.start(id, "read", int64(30+i), int64(30+i))
		s.Arguments(id, []byte(`{ "path": "x" }`))
		s.end(id, "read", int64(40+i), int64(40+i))
	}
	r := s.report(binding.Facts{})
	for i, id := range []string{"g1", "g2"} {
		if b := findBinding(t, r, id); b.ModelSeq == nil || *b.ModelSeq != uint64(i) || b.MatchedBy != "arguments" {
			t.Errorf("binding: %+v", b)
		}
	}
	if len(r.Bindings) != 2 {
		t.Errorf("bindings: %+v", r.Bindings)
	}
}
