package binding_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

func TestStrongerMethodsWin(t *testing.T) {
	s := newScene()
	s.start("window", "x", 100, 110)
	s.Cgroup("cgroup", 77)
	for _, c := range []struct {
		name      string
		ev        kernel.Event
		e         schema.KernelEvent
		want, how string
	}{
		{"environment before window", kernel.Event{}, schema.KernelEvent{ToolCallID: "env", BoundBy: "env"}, "env",
			"env"},
		{"cgroup before environment", kernel.Event{Task: kernel.Task{CgroupID: 77}},
			schema.KernelEvent{ToolCallID: "env", BoundBy: "env"}, "cgroup", "cgroup"},
		{"the child's cgroup at a fork",
			kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindFork}, Task: kernel.Task{CgroupID: 1},
				Child: kernel.Task{CgroupID: 77}}, schema.KernelEvent{Kind: schema.KindFork}, "cgroup", "cgroup"},
		{"else the window", kernel.Event{Task: kernel.Task{CgroupID: 1}}, schema.KernelEvent{}, "window", "window"},
	} {
		c.e.TNS = 150
		s.Bind(&c.ev, &c.e)
		if c.e.ToolCallID != c.want || c.e.BoundBy != c.how {
			t.Errorf("%s: bound to %s by %s, want %s by %s", c.name, c.e.ToolCallID, c.e.BoundBy, c.want, c.how)
		}
	}
	if r := s.report(binding.Facts{}); !slices.Contains(r.Ambiguities, "tool_call_ids_conflict:cgroup") {
		t.Errorf("ambiguities %v do not tell of the conflict", r.Ambiguities)
	}
}

func TestCallsOfTheGateway(t *testing.T) {
	s := scene{binding.New(binding.Options{})} // without a log
	const ms = 1_000_000
	at := func(t int64) func() int64 { return func() int64 { return t } }
	s.Begin("g", "x", 0, at(100*ms))
	s.End("g", at(200*ms))
	for at, want := range map[int64]string{100 * ms: "", 100*ms + 1: "g", 200 * ms: "g", 200*ms + 1: ""} {
		if e := s.open("/w/f", 0, at); e.ToolCallID != want {
			t.Errorf("%d ms: bound to %q, want %q", at/ms, e.ToolCallID, want)
		}
	}
	s.Begin("both", "x", 0, at(300*ms)) // and its SDK has a log as well
	s.start("both", "x", 300*ms, 310*ms)
	s.end("both", "x", 390*ms, 400*ms)
	s.End("both", at(401*ms))
	s.decide("both", "x", "allow", 300*ms)
	s.Decided("rate-limited", "x", "allow") // and so it never began
	// A proxy's log allowed what the gateway then denied, in either order.
	s.decide("denied-1", "x", "allow", 450*ms)
	s.Decided("denied-1", "x", "deny")
	s.Decided("denied-2", "x", "deny")
	s.decide("denied-2", "x", "allow", 451*ms)
	s.decide("denied-3", "x", "allow", 452*ms)
	s.decide("denied-3", "x", "deny", 453*ms)
	if e := s.open("/w/f", 0, 500*ms); e.ToolCallID != "" {
		t.Errorf("bound to %q, which never began", e.ToolCallID)
	}
	r := s.report(binding.Facts{KernelLines: 1, Observed: true, Correlation: schema.Clean})
	for _, u := range r.ReportedNotObserved {
		if u.ToolCallID != "both" {
			t.Errorf("%s, which was not dispatched, is missed", u.ToolCallID)
		}
	}
	if len(r.Bindings) != 6 || len(r.Ambiguities) != 0 || s.SDKCalls() != 1 {
		t.Errorf("bindings %v, ambiguities %v, %d calls of an SDK", r.Bindings, r.Ambiguities, s.SDKCalls())
	}
}

func TestTraceparentOfANamedSpan(t *testing.T) {
	s := newScene()
	s.SDK(&schema.SDKEvent{EventType: agentlog.ToolCallStarted, ToolCallID: "a", Tool: "x", SpanID: "00f067aa0ba902b7"},
		agentlog.Arrival{After: 1, At: 2})
	s.start("b", "x", 1, 2)
	for parent, want := range map[string]string{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "a",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01": "a",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01": "",
		"garbage": "",
	} {
		e := schema.KernelEvent{Kind: schema.KindExec, TNS: 50}
		s.Bind(&kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindExec}, Traceparent: parent}, &e)
		if e.ToolCallID != want || want != "" && e.BoundBy != schema.BoundByEnv {
			t.Errorf("%s: bound to %q by %q, want %q by env", parent, e.ToolCallID, e.BoundBy, want)
		}
	}
}

// TestMemoryIsBounded: neither events nor calls nor names make the memory grow.
func TestMemoryIsBounded(t *testing.T) {
	layertest.Host(t)
	s := newScene()
	for i := range binding.MaxCalls + 1000 {
		id := fmt.Sprintf("call-%d-%s", i, strings.Repeat("x", 100))
		s.start(id, "x", int64(i), int64(i))
		e := schema.KernelEvent{Kind: schema.KindUnlink, TNS: int64(i), ToolCallID: id, BoundBy: "env"}
		for j := range 80 {
			e.Value = fmt.Sprintf("/w/%d/%d/%s", i, j, strings.Repeat("y", 200))
			s.Bind(&kernel.Event{}, &e)
		}
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 64<<20 {
		t.Errorf("%d MiB after %d calls", m.HeapAlloc>>20, binding.MaxCalls)
	}
	r := s.report(binding.Facts{})
	if len(r.Bindings) != binding.MaxCalls || !slices.Contains(r.Ambiguities, schema.AmbiguousTooManyCalls) {
		t.Errorf("%d bindings, ambiguities end in %v", len(r.Bindings), r.Ambiguities[max(0, len(r.Ambiguities)-2):])
	}
	var beyond uint64
	for _, b := range r.Bindings {
		beyond += b.Beyond
	}
	if beyond == 0 {
		t.Error("nothing says that the lists are not whole")
	}
}

func TestConcurrentUse(t *testing.T) {
	s := newScene()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				id := fmt.Sprint(w, "-", i)
				s.start(id, "x", int64(i), int64(i)+1)
				s.decide(id, "x", "allow", int64(i)+2)
				s.Cgroup(id, uint64(w*10_000+i+1))
				s.end(id, "x", int64(i)+3, int64(i)+4)
			}
		})
	}
	for i := range 20_000 {
		s.open("/w/f", uint64(i&1), int64(i))
	}
	wg.Wait()
	r := s.report(binding.Facts{})
	var sum uint64
	for _, n := range r.Events {
		sum += n
	}
	if sum != 20_000 || len(r.Bindings) != 8000 {
		t.Errorf("%d events counted, %d bindings", sum, len(r.Bindings))
	}
}

func BenchmarkBind(b *testing.B) {
	for _, open := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("%d calls open", open), func(b *testing.B) {
			s := newScene()
			for i := range open {
				s.start(fmt.Sprint(i), "x", 1, 2)
			}
			ev := &kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindOpen}}
			e := schema.KernelEvent{Kind: schema.KindOpen, Value: "/w/f", HasResult: true, TNS: 10}
			for b.Loop() {
				e.ToolCallID, e.BoundBy = "", ""
				s.Bind(ev, &e)
			}
		})
	}
}
