package archive

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func appendEvent(t testing.TB, s *Spool, e schema.Event) {
	t.Helper()
	err := s.Append(schema.EventsPath, func(b []byte, seq uint64) []byte {
		e.Schema, e.RunID, e.Seq = schema.EventV0, testRunID, seq
		line, err := schema.Line(e)
		if err != nil {
			t.Fatal(err)
		}
		return append(b, line[:len(line)-1]...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// record plays a whole run of n kernel events into a spool, all but the sealing.
func record(t testing.TB, s *Spool, n int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"/bin/true"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	for range n {
		must(s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte { return kernelLine(b, testRunID, seq) }))
	}
	finish(t, s)
}

// finish is the end of a run whose lifecycle and kernel layers were begun.
func finish(t testing.TB, s *Spool) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Append(schema.PolicyPath, func(b []byte, seq uint64) []byte {
		line, err := schema.Line(schema.PolicyEvent{Schema: schema.PolicyEventV0, RunID: testRunID, Seq: seq,
			SourceEventType: "assay.tool.decision", Source: "test", ToolCallID: "tc_1", Tool: "read_file",
			Decision: "allow"})
		must(err)
		return append(b, line[:len(line)-1]...)
	}))
	w, err := s.Create(schema.StdoutPath)
	must(err)
	w.Write([]byte("hello\n"))
	must(w.Close())
	end(t, s, schema.Stdio{Mode: "pipe", Stdout: &schema.Stream{Bytes: 6, Captured: 6}})
}

// end is what must still be written when all else cannot.
func end(t testing.TB, s *Spool, stdio schema.Stdio) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ms, yes := int64(0), true
	appendEvent(t, s, schema.Event{Type: schema.RunFinished, ExitCode: schema.Some(0),
		Signal: schema.None[int](), Success: &yes, WindowElapsedMS: &ms})
	zero := 0
	health := schema.ObservationHealth{
		Schema: schema.ObservationHealthV0, RunID: testRunID, Platform: "linux",
		KernelLayer: schema.PartialRingbufDrops, RingbufDrops: 1,
		PolicyLayer: schema.Present, SDKLayer: schema.Absent, CgroupCorrelation: schema.Partial,
		NetworkProtocolCoverage:   schema.Unknown,
		NetworkEndpointClaimScope: schema.Unknown, Notes: []string{}, Reasons: []schema.Reason{},
		Hooks:    []schema.Hook{},
		Coverage: []schema.Coverage{}, Layers: map[string]schema.LayerCounts{},
	}
	for _, p := range s.run.Layers() {
		health.Layers[schema.LayerName(p)] = s.Counts(p)
	}
	if s.Counts(schema.PolicyPath).Written == 0 {
		health.PolicyLayer = schema.Absent
	}
	for path, v := range map[string]any{
		schema.HealthPath: health,
		schema.SurfacePath: schema.CapabilitySurface{Schema: schema.CapabilitySurfaceV0, RunID: testRunID,
			FilesystemPaths: []string{}, NetworkEndpoints: []string{}, ProcessExecs: []string{},
			MCPTools: []string{"read_file"}, PolicyDecisions: []string{"allow:read_file"}},
		schema.CorrelationPath: schema.CorrelationReport{Schema: schema.CorrelationReportV0, RunID: testRunID,
			Status: schema.Partial, Bindings: []schema.Binding{}, Ambiguities: []string{}},
		schema.ResultPath: schema.Result{Schema: schema.ResultV0, RunID: testRunID, Outcome: schema.OutcomeExited,
			ExitCode: &zero, RunnerExitCode: &zero, LimitsHit: []string{},
			Stdio: stdio, Timings: schema.Timings{SetupNS: new(int64), ChildNS: new(int64), CleanupNS: new(int64)},
			Leftovers: &zero},
	} {
		doc, err := schema.Document(v)
		must(err)
		must(s.Put(path, doc))
	}
}

// sealSample records and seals a run to a file of the given name.
func sealSample(t testing.TB, name string, n int) Sealed {
	t.Helper()
	return sealRun(t, testRun(t), name, n)
}

func sealRun(t testing.TB, run schema.Run, name string, n int) Sealed {
	t.Helper()
	run.Output = filepath.Join(t.TempDir(), name)
	s, _ := newSpool(t, run)
	record(t, s, n)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func verified(t testing.TB, path string) *Report {
	t.Helper()
	r, err := Verify(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustBeSound(t testing.TB, path string) *Report {
	t.Helper()
	r := verified(t, path)
	for _, p := range r.Problems {
		t.Errorf("%s: %v", filepath.Base(path), &p)
	}
	return r
}
