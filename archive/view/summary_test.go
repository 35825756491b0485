package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

func TestSummary(t *testing.T) {
	b := sample()
	code := 0
	b.docs.Run.RunID, b.docs.Result.Outcome, b.docs.Result.ExitCode, b.docs.Result.Timings.ChildNS = "run_1", "exited",
		&code, new(int64(1500*time.Millisecond))
	b.docs.Health.SetKernelLayer(schema.Complete)
	b.docs.Health.Model = "sha256:0"
	b.docs.Health.NetworkProtocolCoverage,
		b.docs.Health.NetworkEndpointClaimScope = "connect_only", "diagnostic_only"
	b.docs.Health.PolicyLayer, b.docs.Health.SDKLayer, b.docs.Health.CgroupCorrelation = "present", "absent", "clean"
	b.docs.Health.Layers = map[string]schema.LayerCounts{"policy": {Seen: 3, Written: 3}}
	b.docs.Correlation.Status = "partial"
	b.docs.Run.StartedAt, b.docs.Run.Workdir = "2026-01-02T03:04:05Z", "/w"
	ns, peak := int64(20*time.Millisecond), int64(3<<20)
	b.docs.Result.Usage = schema.Usage{CPUUserNS: &ns, CPUSystemNS: &ns, MemoryPeakBytes: &peak}
	b.docs.Result.Stdio = schema.Stdio{Mode: "pipe",
		Stdout: &schema.Stream{Bytes: 2048, Captured: 1024, Truncated: true}}
	b.docs.Result.LimitsHit, b.docs.Result.Leftovers = []string{"pids"}, new(2)
	b.docs.Run.Labels = map[string]string{"suite": "nightly"}
	b.docs.Result.Contract = new("failed")
	b.docs.Contract = &schema.Contract{
		Results: []schema.CheckResult{{Name: "builds", Ran: true, Passed: true},
			{Name: "tests", Ran: true, ExitCode: new(1)}, {Name: "lint"}},
		ProtectedChanges: []schema.ProtectedChange{{Path: "x_test.go", Change: "modified", During: "agent",
			Restored: true}},
	}
	s, err := Summarize(t.Context(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.WriteText(&out, Page{All: true}); err != nil {
		t.Fatal(err)
	}
	want := `run        run_1
labels     suite=nightly
started    2026-01-02T03:04:05Z in /w
command    sh -c 'x y'
outcome    exited 0 after 1.5s
contract   failed
sandbox    not recorded
kernel     complete; network connect_only, endpoints diagnostic_only
checks     failed  tests (exit 1)
           not run lint
           passed  builds
protected  x_test.go modified, restored before checking
policy     present, 3 events
sdk        absent
cgroup     clean

what may be claimed
  ✓ Every program that the run executed is listed.
  ✓ Every file that the run opened or changed is listed, within the known blind spots.
  ! The run may have talked to hosts that are not listed: the list of hosts may not be whole: network coverage is connect only, and endpoints are diagnostic only; assay-run doctor says what this host can observe
  ! Tool calls are not known: calls and what was observed could not all be matched: correlation is partial

changed in the workspace (1)
  ~ final cat

hosts (1)
  1× out 100 B in 4.9 KiB 203.0.113.1:443 (api.example.com)

denied (1)
  1× openat EACCES /etc/shadow by /usr/lib/helper

programs (4)
  1× /usr/bin/dash
  1× /usr/bin/curl   by /usr/bin/dash
  1× /usr/lib/helper by /usr/bin/curl
  1× /usr/bin/cat    by /usr/bin/dash

files created (1)
  1× /w/out by /usr/bin/cat

files written (2)
  1× /w/out   by /usr/bin/cat
  1× /w/final by /usr/bin/cat

files deleted (1)
  1× /w/out by /usr/bin/cat

processes (4)
  10 sh -c x  not ended
    11 curl 'https://api.example.com/a b'  exit 7
      12 helper  not ended
    13 cat /w/in  not ended

commands (4)
  1× /usr/bin/dash   sh -c x
  1× /usr/bin/curl   curl 'https://api.example.com/a b'
  1× /usr/lib/helper helper
  1× /usr/bin/cat    cat /w/in

files read in the workspace (1)
  41× /w/in by /usr/bin/cat

failed (1)
  1× openat ENOENT /w/missing by /usr/bin/cat

what it used
used       cpu 20ms user 20ms system, memory 3.0 MiB
limits     pids hit
leftovers  2 processes outlived the command and were ended
output     stdout 2.0 KiB (1.0 KiB kept)
events     57 (agent 56, loader 1)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	doc, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Summary
	if err := json.Unmarshal(doc, &back); err != nil || back.Processes.Total != 4 || back.Read.Items[0].Count != 41 ||
		back.ByKind["exec"] != 4 {
		t.Errorf("%v: %s", err, doc)
	}
}

// storm is n processes under one shell, each touching a file of its own.
func storm(n int, argv func(int) string) *memory {
	evs := []schema.KernelEvent{begin(schema.KindFork, 10, 1, 0, ""), begin(schema.KindExec, 10, 2, 1, "/bin/sh", "sh")}
	for i := range n {
		id := uint64(3 + 2*i)
		pid := uint32(100 + i)
		evs = append(evs, begin(schema.KindFork, pid, id, 2, ""),
			begin(schema.KindExec, pid, id+1, id, "/bin/true", "true", argv(i)),
			schema.KernelEvent{Kind: schema.KindOpen, PID: pid, TID: pid, ExecID: id + 1, Value: fmt.Sprint("/f/", i),
				HasResult: true},
			schema.KernelEvent{Kind: schema.KindExit, PID: pid, TID: pid, ExecID: id + 1})
	}
	return bundle(evs...)
}

func TestEqualProcessesAreOne(t *testing.T) {
	s, err := Summarize(t.Context(), storm(5000, func(int) string { return "same" }), 0)
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Processes; p.Total != 5001 || p.Shown != 5001 || len(p.Roots) != 1 || len(p.Roots[0].Children) != 1 ||
		p.Roots[0].Children[0].Count != 5000 {
		t.Errorf("%+v", p)
	}
}

func TestSummaryIsBounded(t *testing.T) {
	layertest.Host(t)
	b := storm(60_000, func(i int) string { return fmt.Sprint(i) })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	g := newGatherer(200, "/w")
	var e schema.KernelEvent
	for _, line := range b.layers[schema.KernelPath] {
		if err := schema.DecodeKernelEvent([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		g.event(&e)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 48<<20 {
		t.Errorf("%d bytes are held", grown)
	}
	s := g.summary(20)
	if s.Processes.Total != 60_001 || s.Processes.Shown != 200 || len(s.Read.Items) != 20 ||
		s.Read.Total != maxDistinct || s.Read.Beyond != 10_000 {
		t.Errorf("%d processes, %d shown, %d files, %d beyond", s.Processes.Total, s.Processes.Shown, s.Read.Total,
			s.Read.Beyond)
	}
	if n := g.facts.Known(); n > 5000 {
		t.Errorf("%d processes are still known", n)
	}
}

// Files beyond the bound of a list are counted where they belong.
func TestFilesBeyondTheBoundKeepTheirPlace(t *testing.T) {
	const inside, outside = maxDistinct + 300, 20
	g := newGatherer(10, "/w")
	for i := range inside + outside {
		e := &schema.KernelEvent{Kind: schema.KindOpen, Flags: 0o101, Created: true, HasResult: true,
			Value: fmt.Sprintf("/w/%d", i)}
		if i >= inside {
			e.Value = fmt.Sprintf("/elsewhere/%d", i)
		}
		g.event(e)
	}
	out, in := places(g.summary(10).Created)
	if out.Beyond != outside || in.Beyond != inside-maxDistinct {
		t.Errorf("%d beyond are outside of the workspace and %d in it, want %d and %d", out.Beyond, in.Beyond, outside,
			inside-maxDistinct)
	}
}

func BenchmarkEvents(b *testing.B) {
	m := storm(10_000, func(int) string { return "x" })
	n := len(m.layers[schema.KernelPath])
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range Events(b.Context(), m, Filter{Path: "/nothing/**", Process: "true"}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/line")
}

// Connections that the run accepted are listed by its own port.
func TestServersAreListedOnce(t *testing.T) {
	events := []schema.KernelEvent{begin(schema.KindFork, 10, 1, 0, "")}
	for _, peer := range []string{"192.0.2.1:50001", "192.0.2.1:50002"} {
		e := result(schema.KernelEvent{Kind: schema.KindAccept, PID: 10, TID: 10, ExecID: 1, Value: peer,
			Local: "192.0.2.9:80", Protocol: "tcp"}, 5)
		events = append(events, e)
	}
	events = append(events, schema.KernelEvent{Kind: schema.KindFlow, Local: "192.0.2.9:80", Peers: 2, BytesIn: 10,
		BytesOut: 20, Protocol: "tcp"})
	s, err := Summarize(t.Context(), bundle(events...), 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []Host{{Endpoint: "192.0.2.9:80", Listening: true, Peers: 2, Protocol: "tcp", Count: 2, BytesIn: 10,
		BytesOut: 20}}
	if d := cmp.Diff(want, s.Hosts.Items); d != "" {
		t.Error(d)
	}
}

// What assay-run does to contain the command or a check is no action of the agent's.
func TestWhatTheRunnerDoesIsNotPrivilegedOrDenied(t *testing.T) {
	event := func(class schema.Class, result int64) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindMount, Class: class, Value: "/" + class.String(), HasResult: true,
			Result: result}
	}
	g := newGatherer(200, "/w")
	for _, class := range []schema.Class{schema.ClassAgent, schema.ClassRunner, schema.ClassCheck, schema.ClassSetup} {
		g.failure(g.facts.Read(event(class, 0)), 1)
		g.failure(g.facts.Read(event(class, -2)), 1)  // ENOENT
		g.failure(g.facts.Read(event(class, -13)), 1) // EACCES
	}
	s := g.summary(0)
	var privileged, denied []string
	for _, f := range s.Privileged.Items {
		privileged = append(privileged, f.Value)
	}
	for _, f := range s.Denied.Items {
		denied = append(denied, f.Value)
	}
	if diff := cmp.Diff([]string{"/agent", "/agent"}, privileged); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/agent", "/check", "/setup"}, denied); diff != "" {
		t.Error(diff)
	}
}

// Git's own files come after those that the run changed.
func TestGitsFilesComeLast(t *testing.T) {
	s := &Summary{Workdir: "/w"}
	for _, path := range []string{"/w/.git/objects/0c/1", "/w/sub/.git/index", "/w/f", "/w/.gitignore"} {
		s.Created.Items = append(s.Created.Items, File{Path: path})
	}
	var got []string
	for _, c := range s.changes().Items {
		got = append(got, c.path)
	}
	if diff := cmp.Diff([]string{"f", ".gitignore", ".git/objects/0c/1", "sub/.git/index"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
