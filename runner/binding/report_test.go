package binding_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

func TestKnownAmbiguities(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(s scene)
		facts binding.Facts
		want  []string
	}{
		{"decisions without a kernel layer", func(s scene) { s.decide("a", "x", "allow", 1) },
			binding.Facts{Correlation: schema.Partial}, []string{schema.AmbiguousPolicyWithoutKernel}},
		{"a call without a decision", func(s scene) {
			s.start("a", "x", 1, 2)
			s.end("a", "x", 3, 4)
			s.decide("b", "x", "allow", 5)
		}, binding.Facts{Correlation: schema.Clean, KernelLines: 1, Observed: true},
			[]string{schema.AmbiguousSDKWithoutPolicy + "a"}},
		{"a call without a decision where there is no policy", func(s scene) {
			s.start("a", "x", 1, 2)
			s.end("a", "x", 3, 4)
		}, binding.Facts{}, []string{}},
		{"decisions that only time could tell apart, and does not", func(s scene) {
			s.decide("a", "x", "allow", 10)
			s.decide("b", "x", "allow", 20)
			s.open("/w/f", 0, 30)
		}, binding.Facts{Correlation: schema.Clean, KernelLines: 1, Observed: true},
			[]string{schema.AmbiguousSessionCgroup, schema.AmbiguousOverlap}},
		{"decisions that the environment tells apart", func(s scene) {
			s.decide("a", "x", "allow", 10)
			s.decide("b", "x", "allow", 20)
			s.open("/w/f", 0, 30)
			for _, id := range []string{"a", "b"} {
				s.Bind(&kernel.Event{}, &schema.KernelEvent{TNS: 40, ToolCallID: id, BoundBy: "env"})
			}
		}, binding.Facts{Correlation: schema.Clean, KernelLines: 1, Observed: true}, []string{}},
		{"a call that never ended", func(s scene) {
			s.start("a", "x", 1, 2)
		}, binding.Facts{}, []string{schema.AmbiguousNeverEnded + "a"}},
		{"a call that never began", func(s scene) {
			s.end("a", "x", 1, 2)
		}, binding.Facts{}, []string{schema.AmbiguousNeverStarted + "a"}},
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
	s.Bind(&kernel.Event{}, &schema.KernelEvent{Kind: schema.KindUnlink, Value: "/w/anyway", TNS: 650,
		ToolCallID: "denied", BoundBy: "env"})
	s.Bind(&kernel.Event{}, &schema.KernelEvent{Kind: schema.KindConnect, Value: "192.0.2.1:443", TNS: 660,
		ToolCallID: "ghost", BoundBy: "lineage"})
	r := s.report(binding.Facts{})

	if diff := cmp.Diff([]schema.Unobserved{{ToolCallID: "idle", Tool: "list_dir", Code: "no_events"}},
		r.ReportedNotObserved); diff != "" {
		t.Errorf("reported, not observed (-want +got):\n%s", diff)
	}
	want := []schema.Unreported{
		{Code: "beyond_claim", ToolCallIDs: []string{"reader"}, Tool: "read_file", KernelEventCount: 2,
			Effects: schema.Effects{Written: []string{"/w/hidden"}}},
		{Code: "edge", ToolCallIDs: []string{"reader"}, Tool: "read_file", KernelEventCount: 1,
			Effects: schema.Effects{Files: []string{"/w/edge"}, Written: []string{"/w/edge"}}},
		{Code: "denied_call", ToolCallIDs: []string{"denied"}, Tool: "write_file", KernelEventCount: 1,
			Effects: schema.Effects{Written: []string{"/w/anyway"}}},
		{Code: "unknown_call", ToolCallIDs: []string{"ghost"}, KernelEventCount: 1,
			Effects: schema.Effects{Hosts: []string{"192.0.2.1:443"}}},
		{Code: "outside", KernelEventCount: 2,
			Effects: schema.Effects{Files: []string{"/w/outside"}, Written: []string{"/w/outside"}}},
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
	want := &schema.CorrelationReport{Schema: schema.CorrelationReportV0, RunID: "run_1", Status: schema.Clean,
		Bindings: []schema.Binding{}, Ambiguities: []string{}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTheRunnersHelperIsNotTheCommand: the helper that gives the command its caller's limits and signals is executed
// before it, and the command is still the one program that is expected outside of calls.
func TestTheRunnersHelperIsNotTheCommand(t *testing.T) {
	s := newScene()
	for i, e := range []schema.KernelEvent{
		{Kind: schema.KindExec, Value: "/usr/bin/assay-run", Class: schema.ClassRunner,
			Argv: []string{"assay-run", "__steps", "4", "start"}},
		{Kind: schema.KindExec, Value: "/bin/sh", Class: schema.ClassAgent, Argv: []string{"sh", "-c", "agent"}},
	} {
		e.PID, e.ExecID, e.TNS = 7, uint64(i+2), int64(i+10)
		s.Bind(&kernel.Event{}, &e)
	}
	s.start("call", "read_file", 100, 110)
	s.open("/w/in", 0, 120)
	s.end("call", "read_file", 200, 210)
	if r := s.report(binding.Facts{}); len(r.ObservedNotReported) != 0 {
		t.Errorf("observed, not reported: %+v", r.ObservedNotReported)
	}
}
