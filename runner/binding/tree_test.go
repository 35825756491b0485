package binding_test

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// TestATreesCallsBindItAlone: two proxies, 10 and 20, and their client, 5, whose other
// children work beside them.
func TestATreesCallsBindItAlone(t *testing.T) {
	s := scene{binding.New(binding.Options{})}
	at := func(t int64) func() int64 { return func() int64 { return t } }
	event := func(kind schema.KernelKind, pid, parent uint32, at int64) string {
		e := &schema.KernelEvent{Kind: kind, PID: pid, PPID: parent, TNS: at}
		s.Bind(&kernel.Event{}, e)
		return e.ToolCallID
	}
	s.Tree(10, at(100))
	s.Tree(20, at(100))
	event(schema.KindFork, 10, 5, 50) // late event: it is still the proxy
	event(schema.KindFork, 20, 5, 50)
	event(schema.KindFork, 11, 10, 110)
	event(schema.KindFork, 21, 20, 110)
	s.Begin("a", "x", 10, at(200))
	s.Begin("b", "x", 20, at(200))
	event(schema.KindFork, 12, 11, 210)
	event(schema.KindExit, 11, 0, 220)
	event(schema.KindFork, 6, 5, 230)
	for pid, want := range map[uint32]string{5: "", 6: "", 10: "a", 11: "a", 12: "a", 20: "b", 21: "b", 99: ""} {
		if got := event(schema.KindOpen, pid, 0, 300); got != want {
			t.Errorf("what process %d did is bound to %q, want %q", pid, got, want)
		}
	}
	event(schema.KindFork, 11, 5, 310) // another process with the same number
	if got := event(schema.KindOpen, 11, 0, 320); got != "" {
		t.Errorf("a process that has the number of one in the tree is bound to %q", got)
	}
	s.Begin("c", "x", 0, at(400))
	if got := event(schema.KindOpen, 5, 0, 410); got != "c" {
		t.Errorf("a call of any process's has %q, want c", got)
	}
}

// What a tree does during its call belongs to the call, even if a log line may have been written then: the line was
// read later, and the kernel has not reported when it was written.
func TestATreeWaitsForNoLine(t *testing.T) {
	at := func(n int64) func() int64 { return func() int64 { return n } }
	s := newScene()
	s.Log("/w/decisions.ndjson", 0)
	s.Tree(10, at(50))
	s.Begin("tc_1", "t", 10, at(100))
	s.End("tc_1", at(180))
	s.Decision(&schema.PolicyEvent{ToolCallID: "tc_2", Tool: "t", Decision: "allow"},
		agentlog.Arrival{After: 90, At: 200, Log: "/w/decisions.ndjson", End: 10})
	s.Begin("tc_2", "t", 10, at(210))
	for pid, want := range map[uint32]string{10: "tc_1", 11: ""} {
		e := &schema.KernelEvent{Kind: schema.KindOpen, Value: "/x", PID: pid, HasResult: true, TNS: 150}
		s.Bind(&kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindOpen}}, e)
		if e.ToolCallID != want {
			t.Errorf("what process %d did is bound to %q, want %q", pid, e.ToolCallID, want)
		}
	}
}
