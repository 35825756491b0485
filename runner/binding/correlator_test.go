package binding_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// scene is a correlator whose logs are read up to any time.
type scene struct{ *binding.Correlator }

func newScene() scene {
	c := binding.New(binding.Options{Known: func(int64) bool { return true }})
	c.Own("/w/sdk.ndjson")
	return scene{c}
}

func (s scene) sdk(kind, id, tool string, after, at int64) {
	s.SDK(&schema.SDKEvent{EventType: kind, ToolCallID: id, Tool: tool, TNS: at}, agentlog.Arrival{After: after, At: at})
}

func (s scene) start(id, tool string, after, at int64) {
	s.sdk(agentlog.ToolCallStarted, id, tool, after, at)
}

func (s scene) end(id, tool string, after, at int64) {
	s.sdk(agentlog.ToolCallCompleted, id, tool, after, at)
}

func (s scene) decide(id, tool, decision string, at int64) {
	s.Decision(&schema.PolicyEvent{ToolCallID: id, Tool: tool, Decision: decision}, agentlog.Arrival{After: at - 1, At: at})
}

// open has the agent open a file; flags 1 is for writing.
func (s scene) open(path string, flags uint64, t int64) *schema.KernelEvent {
	e := &schema.KernelEvent{Kind: schema.KindOpen, Value: path, Flags: flags, HasResult: true, TNS: t}
	s.Bind(&kernel.Event{Kind: kernel.KindOpen}, e)
	return e
}

func (s scene) report(f binding.Facts) *schema.CorrelationReport {
	if f.Correlation == "" {
		f.Correlation, f.Observed, f.KernelLines = schema.Clean, true, 1
	}
	f.RunID = "run_1"
	return s.Report(f)
}

func TestWindowsBindOnlyWhatIsCertain(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(s scene)
		t     int64
		want  string // the call, or how it was counted
	}{
		{"between the look that found the start and the last that found no end", func(s scene) {
			s.start("a", "x", 100, 110)
			s.end("a", "x", 200, 210)
		}, 150, "a"},
		{"at the moment of the start", func(s scene) { s.start("a", "x", 100, 110) }, 110, "a"},
		{"before the start was written", func(s scene) { s.start("a", "x", 100, 110) }, 100, "none"},
		{"when the start may have been written", func(s scene) { s.start("a", "x", 100, 110) }, 105, "edge"},
		{"when the end may have been written", func(s scene) {
			s.start("a", "x", 100, 110)
			s.end("a", "x", 200, 210)
		}, 205, "edge"},
		{"after the end", func(s scene) {
			s.start("a", "x", 100, 110)
			s.end("a", "x", 200, 210)
		}, 211, "none"},
		{"in a call that has not ended", func(s scene) { s.start("a", "x", 100, 110) }, 1e9, "a"},
		{"while another is certainly open", func(s scene) {
			s.start("a", "x", 100, 110)
			s.start("b", "x", 120, 130)
		}, 140, "overlap"},
		{"while another may have begun", func(s scene) {
			s.start("a", "x", 100, 110)
			s.start("b", "x", 120, 130)
		}, 125, "overlap"},
		{"while another may not have ended", func(s scene) {
			s.start("a", "x", 100, 110)
			s.start("b", "x", 120, 130)
			s.end("b", "x", 140, 150)
		}, 145, "overlap"},
		{"after the other has ended", func(s scene) {
			s.start("a", "x", 100, 110)
			s.start("b", "x", 120, 130)
			s.end("b", "x", 140, 150)
		}, 151, "a"},
		{"after a decision that allows", func(s scene) { s.decide("a", "x", "allow", 100) }, 150, "a"},
		{"after a decision that denies", func(s scene) { s.decide("a", "x", "deny", 100) }, 150, "none"},
		{"between a decision and the start", func(s scene) {
			s.decide("a", "x", "allow", 100)
			s.start("a", "x", 200, 210)
		}, 150, "none"},
		{"between calls that followed one another in one look", func(s scene) {
			s.start("a", "x", 100, 110)
			s.end("a", "x", 200, 210)
			s.start("b", "x", 200, 210)
			s.end("b", "x", 200, 210)
		}, 205, "edge"},
		{"between calls that overlapped in one look", func(s scene) {
			s.start("a", "x", 100, 110)
			s.start("b", "x", 200, 210)
			s.end("a", "x", 200, 210)
			s.end("b", "x", 200, 210)
		}, 205, "overlap"},
		{"a call that is only said to have ended", func(s scene) { s.end("a", "x", 100, 110) }, 90, "none"},
		{"a call that was started twice", func(s scene) {
			s.start("a", "x", 100, 110)
			s.end("a", "x", 120, 130)
			s.start("a", "x", 200, 210)
		}, 220, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene()
			c.setup(s)
			e := s.open("/w/f", 0, c.t)
			r := s.report(binding.Facts{})
			got := e.ToolCallID
			if got == "" {
				for _, k := range []string{"edge", "overlap", "none"} {
					if r.Events[k] == 1 {
						got = k
					}
				}
			} else if e.BoundBy != schema.BoundByWindow || r.Events[schema.BoundByWindow] != 1 {
				t.Errorf("bound by %s, counted %v", e.BoundBy, r.Events)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestARepeatIsInAWindowAsAWhole(t *testing.T) {
	s := newScene()
	s.start("a", "x", 100, 110)
	s.end("a", "x", 200, 210)
	s.start("b", "x", 300, 310)
	for _, c := range []struct {
		first, last int64
		want        string
	}{{120, 180, "a"}, {120, 320, ""}, {120, 250, ""}, {320, 330, "b"}} {
		e := &schema.KernelEvent{Kind: schema.KindOpen, Repeat: true, Count: 5, TFirstNS: c.first, TLastNS: c.last, TNS: 400}
		s.Bind(&kernel.Event{Kind: kernel.KindOpen, Repeat: true}, e)
		if e.ToolCallID != c.want {
			t.Errorf("%d to %d: bound to %q, want %q", c.first, c.last, e.ToolCallID, c.want)
		}
	}
}

func TestNothingIsBoundByTimeThatIsNotKnownYet(t *testing.T) {
	s := scene{binding.New(binding.Options{Known: func(int64) bool { return false }})}
	s.start("a", "x", 100, 110)
	if e := s.open("/w/f", 0, 150); e.ToolCallID != "" {
		t.Errorf("bound to %q although the log has not been read that far", e.ToolCallID)
	}
}

// TestLogsAreReadBeforeAnEventIsBound: a line that is there when an event is
// looked at counts, however late the follower is otherwise.
func TestLogsAreReadBeforeAnEventIsBound(t *testing.T) {
	var s scene
	s = scene{binding.New(binding.Options{Known: func(at int64) bool {
		if at > 100 {
			s.start("a", "x", 90, 95)
		}
		return true
	}})}
	if e := s.open("/w/f", 0, 120); e.ToolCallID != "a" {
		t.Errorf("bound to %q, want a", e.ToolCallID)
	}
}

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
		{"environment before window", kernel.Event{}, schema.KernelEvent{ToolCallID: "env", BoundBy: "env"}, "env", "env"},
		{"cgroup before environment", kernel.Event{CgroupID: 77}, schema.KernelEvent{ToolCallID: "env", BoundBy: "env"}, "cgroup", "cgroup"},
		{"the child's cgroup at a fork", kernel.Event{Kind: kernel.KindFork, CgroupID: 1, ChildCgroupID: 77}, schema.KernelEvent{Kind: schema.KindFork}, "cgroup", "cgroup"},
		{"else the window", kernel.Event{CgroupID: 1}, schema.KernelEvent{}, "window", "window"},
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
	s.Begin("g", "x", at(100*ms))
	s.End("g", at(200*ms))
	for at, want := range map[int64]string{100 * ms: "", 100*ms + 1: "g", 200 * ms: "g", 200*ms + 1: ""} {
		if e := s.open("/w/f", 0, at); e.ToolCallID != want {
			t.Errorf("%d ms: bound to %q, want %q", at/ms, e.ToolCallID, want)
		}
	}
	s.Begin("both", "x", at(300*ms)) // and its SDK has a log as well
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
	r := s.report(binding.Facts{PolicyLines: 1, KernelLines: 1, Observed: true, Correlation: schema.Clean})
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
	s.SDK(&schema.SDKEvent{EventType: agentlog.ToolCallStarted, ToolCallID: "a", Tool: "x", SpanID: "00f067aa0ba902b7"}, agentlog.Arrival{After: 1, At: 2})
	s.start("b", "x", 1, 2)
	for parent, want := range map[string]string{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "a",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01": "a",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01": "",
		"garbage": "",
	} {
		e := schema.KernelEvent{Kind: schema.KindExec, TNS: 50}
		s.Bind(&kernel.Event{Kind: kernel.KindExec, Traceparent: []byte(parent)}, &e)
		if e.ToolCallID != want || want != "" && e.BoundBy != schema.BoundByEnv {
			t.Errorf("%s: bound to %q by %q, want %q by env", parent, e.ToolCallID, e.BoundBy, want)
		}
	}
}

func TestKnownAmbiguities(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(s scene)
		facts binding.Facts
		want  []string
	}{
		{"decisions without a kernel layer", func(s scene) { s.decide("a", "x", "allow", 1) },
			binding.Facts{Correlation: schema.Partial, PolicyLines: 1}, []string{schema.AmbiguousPolicyWithoutKernel}},
		{"a call without a decision", func(s scene) {
			s.start("a", "x", 1, 2)
			s.end("a", "x", 3, 4)
			s.decide("b", "x", "allow", 5)
		}, binding.Facts{Correlation: schema.Clean, PolicyLines: 1, KernelLines: 1, Observed: true}, []string{schema.AmbiguousSDKWithoutPolicy + "a"}},
		{"a call without a decision where there is no policy", func(s scene) {
			s.start("a", "x", 1, 2)
			s.end("a", "x", 3, 4)
		}, binding.Facts{}, []string{}},
		{"decisions that only time could tell apart, and does not", func(s scene) {
			s.decide("a", "x", "allow", 10)
			s.decide("b", "x", "allow", 20)
			s.open("/w/f", 0, 30)
		}, binding.Facts{Correlation: schema.Clean, PolicyLines: 2, KernelLines: 1, Observed: true},
			[]string{schema.AmbiguousSessionCgroup, schema.AmbiguousOverlap}},
		{"decisions that the environment tells apart", func(s scene) {
			s.decide("a", "x", "allow", 10)
			s.decide("b", "x", "allow", 20)
			s.open("/w/f", 0, 30)
			for _, id := range []string{"a", "b"} {
				s.Bind(&kernel.Event{}, &schema.KernelEvent{TNS: 40, ToolCallID: id, BoundBy: "env"})
			}
		}, binding.Facts{Correlation: schema.Clean, PolicyLines: 2, KernelLines: 1, Observed: true}, []string{}},
		{"a call that never ended", func(s scene) { s.start("a", "x", 1, 2) }, binding.Facts{}, []string{schema.AmbiguousNeverEnded + "a"}},
		{"a call that never began", func(s scene) { s.end("a", "x", 1, 2) }, binding.Facts{}, []string{schema.AmbiguousNeverStarted + "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene()
			c.setup(s)
			r := s.report(c.facts)
			if diff := cmp.Diff(c.want, r.Ambiguities); diff != "" {
				t.Errorf("ambiguities (-want +got):\n%s", diff)
			}
			if clean := r.Status == schema.Clean; clean != (len(c.want) == 0) {
				t.Errorf("status %s with %v", r.Status, r.Ambiguities)
			}
		})
	}
}

func TestDifferencesAreListedBothWays(t *testing.T) {
	s := newScene()
	s.start("reader", "read_file", 100, 110)
	s.open("/w/in", 0, 120)
	s.open("/w/hidden", 1, 130)
	s.open("/w/sdk.ndjson", 1, 135)
	s.end("reader", "read_file", 200, 210)
	s.open("/w/edge", 1, 205)
	s.open("/w/outside", 1, 500)
	s.start("idle", "list_dir", 600, 610)
	s.end("idle", "list_dir", 620, 630)
	s.decide("denied", "write_file", "deny", 640)
	s.Bind(&kernel.Event{}, &schema.KernelEvent{Kind: schema.KindUnlink, Value: "/w/anyway", TNS: 650, ToolCallID: "denied", BoundBy: "env"})
	s.Bind(&kernel.Event{}, &schema.KernelEvent{Kind: schema.KindConnect, Value: "192.0.2.1:443", TNS: 660, ToolCallID: "ghost", BoundBy: "lineage"})
	r := s.report(binding.Facts{})

	if diff := cmp.Diff([]schema.Unobserved{{ToolCallID: "idle", Tool: "list_dir", Code: "no_events"}}, r.ReportedNotObserved); diff != "" {
		t.Errorf("reported, not observed (-want +got):\n%s", diff)
	}
	want := []schema.Unreported{
		{Code: "beyond_claim", ToolCallIDs: []string{"reader"}, Tool: "read_file", KernelEventCount: 3, Effects: schema.Effects{Written: []string{"/w/hidden"}}},
		{Code: "edge", ToolCallIDs: []string{"reader"}, Tool: "read_file", KernelEventCount: 1, Effects: schema.Effects{Files: []string{"/w/edge"}, Written: []string{"/w/edge"}}},
		{Code: "denied_call", ToolCallIDs: []string{"denied"}, Tool: "write_file", KernelEventCount: 1, Effects: schema.Effects{Written: []string{"/w/anyway"}}},
		{Code: "unknown_call", ToolCallIDs: []string{"ghost"}, KernelEventCount: 1, Effects: schema.Effects{Hosts: []string{"192.0.2.1:443"}}},
		{Code: "outside", KernelEventCount: 1, Effects: schema.Effects{Files: []string{"/w/outside"}, Written: []string{"/w/outside"}}},
	}
	if diff := cmp.Diff(want, r.ObservedNotReported); diff != "" {
		t.Errorf("observed, not reported (-want +got):\n%s", diff)
	}
	if got := r.Bindings[0].Files; !slices.Equal(got, []string{"/w/hidden", "/w/in"}) {
		t.Errorf("files of the reader: %v", got)
	}
}

func TestAPlainRunReportsNothing(t *testing.T) {
	c := binding.New(binding.Options{})
	c.Bind(&kernel.Event{}, &schema.KernelEvent{Kind: schema.KindUnlink, Value: "/w/x"})
	r := c.Report(binding.Facts{RunID: "run_1", Correlation: schema.Clean, Observed: true, KernelLines: 1})
	want := &schema.CorrelationReport{Schema: schema.CorrelationReportV0, RunID: "run_1", Status: schema.Clean, Bindings: []schema.Binding{}, Ambiguities: []string{}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMemoryIsBounded: neither events nor calls nor names make it grow.
func TestMemoryIsBounded(t *testing.T) {
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
			ev := &kernel.Event{Kind: kernel.KindOpen}
			e := schema.KernelEvent{Kind: schema.KindOpen, Value: "/w/f", HasResult: true, TNS: 10}
			for b.Loop() {
				e.ToolCallID, e.BoundBy = "", ""
				s.Bind(ev, &e)
			}
		})
	}
}
