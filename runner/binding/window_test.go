package binding_test

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// If an SDK reports its calls, a call that was allowed and never started takes no event from the others.
func TestADecisionOpensNoCallOfAnSDKs(t *testing.T) {
	s := scene{binding.New(binding.Options{SDK: true, Known: func(int64) bool { return true }})}
	s.decide("allowed-only", "x", "allow", 100)
	if e := s.open("/w/a", 1, 150); e.ToolCallID != "" {
		t.Errorf("bound to %s, which nobody started", e.ToolCallID)
	}
	s.decide("a", "x", "allow", 200)
	s.start("a", "x", 209, 210)
	if e := s.open("/w/b", 1, 250); e.ToolCallID != "a" {
		t.Errorf("bound to %q, want a", e.ToolCallID)
	}
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
		e := &schema.KernelEvent{Kind: schema.KindOpen, Repeat: true, Count: 5, TFirstNS: c.first, TLastNS: c.last,
			TNS: 400}
		s.Bind(&kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindOpen, Repeat: true}}, e)
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

// TestLogsAreReadBeforeAnEventIsBound: a line that exists when an event is examined counts, however late the follower
// is otherwise.
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

// A line of the SDK's log counts from the kernel's write event on, however late it was read: earlier events are not
// the call's, later ones are, and none is at an edge.
func TestALineIsStampedByItsWrite(t *testing.T) {
	for name, c := range map[string]struct {
		writes [][4]int64 // bytes, first, last, count
		at     [2][2]int64
		want   []string // of events at 90, 150, 250, 290
	}{
		"each line by its write": {[][4]int64{{10, 100, 100, 1}, {20, 200, 200, 1}},
			[2][2]int64{{0, 300}, {0, 300}}, []string{"", "tc_1", "", ""}},
		"a write that counts several ends the last line": {[][4]int64{{10, 100, 100, 1}, {10, 190, 190, 1},
			{10, 195, 200, 2}}, [2][2]int64{{0, 300}, {0, 300}}, []string{"", "tc_1", "", ""}},
		"writes that came in another order": {[][4]int64{{20, 200, 200, 1}, {10, 100, 100, 1}},
			[2][2]int64{{0, 300}, {0, 300}}, []string{"", "tc_1", "", ""}},
		"a write outside of the line's times is not its": {[][4]int64{{10, 5, 5, 1}, {20, 200, 200, 1}},
			[2][2]int64{{80, 300}, {0, 300}}, []string{"", "", "", ""}},
		"a write that returned after its line was read ended when the line was read": {
			[][4]int64{{10, 100, 100, 1}, {20, 250, 250, 1}}, [2][2]int64{{0, 120}, {120, 200}},
			[]string{"", "tc_1", "", ""}},
		"two writes that are counted together, of two lines": {[][4]int64{{30, 100, 200, 2}},
			[2][2]int64{{0, 300}, {0, 300}}, []string{"", "tc_1", "", ""}},
		"three writes of two lines tell no more than when": {[][4]int64{{30, 100, 200, 3}},
			[2][2]int64{{0, 300}, {0, 300}}, []string{"", "", "", ""}},
		"without writes as before": {nil, [2][2]int64{{80, 100}, {200, 220}}, []string{"", "tc_1", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.Log("/w/sdk.ndjson", 0)
			for _, w := range c.writes {
				s.Wrote("/w/sdk.ndjson", uint64(w[0]), uint64(w[3]), w[1], w[2])
				s.Wrote("/w/other", 1000, 1, w[1], w[2])
			}
			line := func(kind string, end int64, at [2]int64) {
				s.SDK(&schema.SDKEvent{EventType: kind, ToolCallID: "tc_1", Tool: "t"},
					agentlog.Arrival{After: at[0], At: at[1], Log: "/w/sdk.ndjson", End: end})
			}
			line(agentlog.ToolCallStarted, 10, c.at[0])
			line(agentlog.ToolCallCompleted, 30, c.at[1])
			for i, at := range []int64{90, 150, 250, 290} {
				if got := s.open("/x", 0, at).ToolCallID; got != c.want[i] {
					t.Errorf("the event at %d is bound to %q, want %q", at, got, c.want[i])
				}
			}
			if n := s.report(binding.Facts{}).Events["edge"]; len(c.writes) == 2 &&
				name != "a write outside of the line's times is not its" && n != 0 {
				t.Errorf("%d events are at an edge", n)
			}
		})
	}
}

// The kernel reports the count of repeated writes late; events of that time wait.
func TestEventsWaitForTheWriteOfALine(t *testing.T) {
	s := newScene()
	s.Log("/w/sdk.ndjson", 0)
	line := func(kind string, end, after, at int64) {
		s.SDK(&schema.SDKEvent{EventType: kind, ToolCallID: "tc_1", Tool: "t"},
			agentlog.Arrival{After: after, At: at, Log: "/w/sdk.ndjson", End: end})
	}
	line(agentlog.ToolCallStarted, 10, 0, 300)
	line(agentlog.ToolCallCompleted, 30, 150, 300)
	for _, at := range []int64{90, 150, 180, 250} {
		s.open("/x", 0, at)
	}
	s.Wrote("/w/sdk.ndjson", 10, 1, 100, 100)
	s.Wrote("/w/sdk.ndjson", 20, 1, 200, 200)
	r := s.report(binding.Facts{})
	if n := r.Bindings[0].KernelEventCount; n != 2 || r.Events["edge"] != 0 {
		t.Errorf("%d events are bound, and %v", n, r.Events)
	}
}
