package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// memory is a bundle in memory.
type memory struct {
	layers map[string][]string
	docs   archive.Documents
}

func (m *memory) Items(_ context.Context, paths ...string) iter.Seq2[*archive.Item, error] {
	return func(yield func(*archive.Item, error) bool) {
		for _, path := range paths {
			decoder := schema.NewLineDecoder(path)
			for i, line := range m.layers[path] {
				record, err := decoder.Decode([]byte(line))
				if err != nil {
					err = fmt.Errorf("%s: line %d: %w", path, i+1, err)
				}
				it := &archive.Item{Path: path, Line: []byte(line), Number: i + 1, Record: record}
				if !yield(it, err) || err != nil {
					return
				}
			}
		}
	}
}

func (m *memory) Documents(context.Context, ...string) (*archive.Documents, error) {
	return &m.docs, nil
}
func (m *memory) Identity() string { return "sha256:0" }

func bundle(evs ...schema.KernelEvent) *memory {
	m := &memory{layers: map[string][]string{}}
	for i, e := range evs {
		e.RunID, e.Seq = "run_1", uint64(i)
		if e.TNS == 0 {
			e.TNS = int64(i) * int64(time.Second)
		}
		m.layers[schema.KernelPath] = append(m.layers[schema.KernelPath], string(schema.AppendJSON(nil, &e)))
	}
	m.docs.Run.Command = []string{"sh", "-c", "x y"}
	return m
}

func ev(kind schema.KernelKind, id uint64, value string) schema.KernelEvent {
	return schema.KernelEvent{Kind: kind, PID: uint32(100 + id), TID: uint32(100 + id), ExecID: id, Value: value}
}

func result(e schema.KernelEvent, n int64) schema.KernelEvent {
	e.HasResult, e.Result = true, n
	return e
}

func begin(kind schema.KernelKind, pid uint32, id, from uint64, exe string, argv ...string) schema.KernelEvent {
	e := schema.KernelEvent{Kind: kind, PID: pid, TID: pid, ExecID: id, ParentExecID: from, Value: exe}
	if kind == schema.KindExec {
		e.Argv = argv
	}
	return e
}

// sample is a shell that runs curl, which runs a helper, and then cat.
func sample() *memory {
	open := func(pid uint32, id uint64, path string, flags uint64, res int64) schema.KernelEvent {
		return schema.KernelEvent{Kind: schema.KindOpen, PID: pid, TID: pid, ExecID: id, Value: path, Flags: flags,
			HasResult: true, Result: res}
	}
	net := func(kind schema.KernelKind, pid uint32, id uint64, ep string) schema.KernelEvent {
		return schema.KernelEvent{Kind: kind, PID: pid, TID: pid, ExecID: id, Value: ep, Protocol: "tcp",
			Names: []string{"api.example.com"}}
	}
	flow := net(schema.KindFlow, 11, 4, "203.0.113.1:443")
	flow.BytesIn, flow.BytesOut = 5000, 100
	exit := schema.KernelEvent{Kind: schema.KindExit, PID: 11, TID: 11, ExecID: 4, WaitStatus: 7 << 8}
	loader := open(10, 2, "/etc/ld.so.cache", 0, 3)
	loader.Class = schema.ClassLoader
	repeat := open(13, 8, "/w/in", 0, 3)
	repeat.Repeat, repeat.Count, repeat.TFirstNS, repeat.TLastNS = true, 40, int64(30*time.Second),
		int64(40*time.Second)
	bound := open(13, 8, "/w/out", 0o1101, 3)
	bound.Created = true
	bound.ToolCallID, bound.BoundBy, bound.Mode = "tc_1", "env", 0o644
	rename := result(begin(schema.KindRename, 13, 8, 0, "/w/out"), 0)
	rename.Target = "/w/final"
	return bundle(
		begin(schema.KindFork, 10, 1, 0, ""), begin(schema.KindExec, 10, 2, 1, "/usr/bin/dash", "sh", "-c", "x"),
		loader,
		begin(schema.KindFork, 11, 3, 2, ""),
		begin(schema.KindExec, 11, 4, 3, "/usr/bin/curl", "curl", "https://api.example.com/a b"),
		begin(schema.KindFork, 12, 5, 4, ""), begin(schema.KindExec, 12, 6, 5, "/usr/lib/helper", "helper"),
		result(net(schema.KindConnect, 11, 4, "203.0.113.1:443"), 0), open(12, 6, "/etc/shadow", 0, -13), exit,
		begin(schema.KindFork, 13, 7, 2, ""), begin(schema.KindExec, 13, 8, 7, "/usr/bin/cat", "cat", "/w/in"),
		open(13, 8, "/w/in", 0, 3), repeat, bound, rename, open(13, 8, "/w/missing", 0, -2), flow,
	)
}

func kindsOf(t *testing.T, b Items, f Filter) string {
	t.Helper()
	var got []string
	for e, err := range Events(t.Context(), b, f) {
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		got = append(got, fmt.Sprintf("%d:%s", e.Kernel.Seq, e.Kind))
	}
	return strings.Join(got, " ")
}

func TestFilters(t *testing.T) {
	b := sample()
	for _, c := range []struct {
		name string
		f    Filter
		want string
	}{
		{"by kind", Filter{Kinds: []string{"exec"}}, "1:exec 4:exec 6:exec 11:exec"},
		{"by pid", Filter{PIDs: []uint32{12}}, "5:fork 6:exec 8:openat"},
		{"by exec_id", Filter{ExecIDs: []uint64{4}}, "4:exec 7:connect 9:exit 17:flow"},
		{"by exec_id and what it started", Filter{ExecIDs: []uint64{4}, Descendants: true},
			"4:exec 5:fork 6:exec 7:connect 8:openat 9:exit 17:flow"},
		{"by executable's name", Filter{Process: "cu*"}, "4:exec 7:connect 9:exit 17:flow"},
		{"by executable's path", Filter{Process: "/usr/lib/**"}, "6:exec 8:openat"},
		{"by arguments", Filter{Process: "curl *api.example.com/*"}, "4:exec 7:connect 9:exit 17:flow"},
		{"by path", Filter{Path: "/w/**"}, "12:openat 13:openat 14:openat 15:rename 16:openat"},
		{"by a path without a glob", Filter{Path: "/w/final"}, "15:rename"},
		{"by one level of a path", Filter{Path: "/*"}, ""},
		{"by host name", Filter{Host: "*.example.com"}, "7:connect 17:flow"},
		{"by address", Filter{Host: "203.0.113.1"}, "7:connect 17:flow"},
		{"by prefix", Filter{Host: "203.0.0.0/16"}, "7:connect 17:flow"},
		{"by endpoint", Filter{Host: "203.0.113.1:443"}, "7:connect 17:flow"},
		{"by another host", Filter{Host: "203.0.113.2"}, ""},
		{"by errno", Filter{Result: "eacces"}, "8:openat"},
		{"by error", Filter{Result: "error"}, "8:openat 16:openat"},
		{"by success", Filter{Result: "ok", Kinds: []string{"connect", "rename"}}, "7:connect 15:rename"},
		{"by class", Filter{Classes: []string{"loader"}}, "2:openat"},
		{"by time", Filter{Since: 15 * time.Second, Until: 16 * time.Second}, "15:rename 16:openat"},
		{"by a repeat's time", Filter{Since: 35 * time.Second, Until: 36 * time.Second}, "13:openat"},
		{"by tool call", Filter{ToolCall: "tc_1"}, "14:openat"},
		{"by all at once", Filter{Path: "/w/*", Kinds: []string{"openat"}, Result: "ok", Process: "cat"},
			"12:openat 13:openat 14:openat"},
	} {
		if got := kindsOf(t, b, c.f); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestImpossibleFiltersAreRefused(t *testing.T) {
	for _, f := range []Filter{
		{Layers: []string{"colonel"}}, {Kinds: []string{"opn"}}, {Classes: []string{"noise"}}, {Result: "maybe"},
		{Path: "/a[b"}, {Process: "{a"}, {Host: "[x"},
		{Since: 5, Until: 3},
	} {
		for _, err := range Events(t.Context(), sample(), f) {
			if !errors.Is(err, errFilter) {
				t.Errorf("%+v: %v", f, err)
			}
		}
	}
}

func TestOtherLayers(t *testing.T) {
	b := sample()
	b.layers[schema.EventsPath] = []string{
		`{"schema":"assay.runner.event.v0","run_id":"r","seq":0,"type":"cancelled","t_ns":1}`,
		`{"schema":"assay.runner.event.v0","run_id":"r","seq":1,"type":"timeout","t_ns":2000000000}`}
	sdk := `{"schema":"assay.runner.sdk_event.v0","run_id":"r","event_type":"tool_call_started","source":"log",` +
		`"sdk_name":"x","sdk_version":"1",`
	b.layers[schema.SDKPath] = []string{sdk + `"seq":0,"tool_call_id":"tc_1","t_ns":5}`,
		sdk + `"seq":1,"tool_call_id":"tc_2"}`}
	for name, c := range map[string]struct {
		f    Filter
		want int
	}{
		"two layers":           {Filter{Layers: []string{"lifecycle", "sdk"}}, 4},
		"one kind":             {Filter{Layers: []string{"lifecycle"}, Kinds: []string{"timeout"}}, 1},
		"a tool call":          {Filter{Layers: []string{"lifecycle", "sdk"}, ToolCall: "tc_1"}, 1},
		"a time":               {Filter{Layers: []string{"lifecycle"}, Since: time.Second}, 1},
		"what only kernel has": {Filter{Layers: []string{"lifecycle", "sdk"}, Path: "/**"}, 0},
	} {
		n := 0
		for e, err := range Events(t.Context(), b, c.f) {
			if err != nil || e.Kernel != nil {
				t.Fatalf("%s: %v %+v", name, err, e)
			}
			n++
		}
		if n != c.want {
			t.Errorf("%s: %d events, want %d", name, n, c.want)
		}
	}
}

func TestABadLineIsNamed(t *testing.T) {
	b := sample()
	b.layers[schema.KernelPath][3] = "{}"
	var last error
	for _, err := range Events(t.Context(), b, Filter{}) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "layers/kernel.ndjson: line 4:") {
		t.Errorf("the error is %v", last)
	}
	if _, err := Summarize(t.Context(), b, 0); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("the summary's error is %v", err)
	}
}

func TestNDJSONIsWhatTheBundleHolds(t *testing.T) {
	b := sample()
	var out bytes.Buffer
	n, err := WriteNDJSON(&out, Events(t.Context(), b, Filter{}))
	if want := strings.Join(b.layers[schema.KernelPath], "\n") + "\n"; err != nil || n != 18 || out.String() != want {
		t.Errorf("%d lines, %v: %s", n, err, cmp.Diff(want, out.String()))
	}
	b.layers[schema.KernelPath] = []string{strings.Replace(b.layers[schema.KernelPath][8], "shadow", "s\u009bh\x7fé",
		1)}
	out.Reset()
	if _, err := WriteNDJSON(&out, Events(t.Context(), b, Filter{})); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `/etc/s\u009bh\u007fé`) {
		t.Errorf("control characters pass: %q", &out)
	}
	var x, y any
	if json.Unmarshal(out.Bytes(), &x); json.Unmarshal([]byte(b.layers[schema.KernelPath][0]), &y) != nil ||
		!cmp.Equal(x, y) {
		t.Errorf("the JSON is another")
	}
}

const hostile = "/tmp/\x1b]0;pwned\x07\x1b[2J\r\n\u009b31m\u202egpj.exe\xff\x7f"

// hostileEvents have the hostile name in every place that a name can have.
func hostileEvents() []schema.KernelEvent {
	var evs []schema.KernelEvent
	for _, k := range append(schema.Kinds(), 999) {
		e := result(ev(k, 1, hostile), -13)
		e.Target, e.Call, e.Local, e.Remote, e.Protocol = hostile, hostile, hostile, hostile, hostile
		e.Names, e.Argv, e.Exe, e.Cwd, e.ToolCallID = []string{hostile, hostile}, []string{hostile, hostile}, hostile,
			hostile, hostile
		e.DNS = &schema.DNSMessage{Type: hostile, RCode: hostile,
			Answers: []schema.DNSAnswer{{Name: hostile, Type: hostile, Data: hostile}}}
		evs = append(evs, e)
		e.HasResult, e.ParentExecID = false, 1
		evs = append(evs, e)
	}
	return evs
}

func TestNothingDrivesTheTerminal(t *testing.T) {
	b := bundle(hostileEvents()...)
	b.docs.Run.RunID, b.docs.Run.Command, b.docs.Result.Outcome = hostile, []string{hostile}, hostile
	b.docs.Health.KernelLayer, b.docs.Health.Reasons = hostile, []schema.Reason{{Code: hostile, Message: hostile}}
	effects := schema.Effects{Files: []string{hostile}, Written: []string{hostile}, Hosts: []string{hostile},
		Commands: []string{hostile}}
	b.docs.Correlation = schema.CorrelationReport{
		Status: hostile, Ambiguities: []string{hostile},
		Bindings: []schema.Binding{
			{ToolCallID: hostile, Tool: hostile, PolicyDecision: hostile, Method: hostile, Effects: effects},
			{ToolCallID: "unseen", Tool: hostile},
		},
		ReportedNotObserved: []schema.Unobserved{{ToolCallID: "unseen", Code: hostile}},
		ObservedNotReported: []schema.Unreported{
			{Code: "beyond_claim", ToolCallIDs: []string{hostile}, Tool: hostile, Effects: effects},
			{Code: "edge", ToolCallIDs: []string{hostile}, Effects: effects}, {Code: hostile},
		},
	}
	b.layers[schema.SDKPath] = []string{`{"schema":"assay.runner.sdk_event.v0","run_id":"r","seq":0,` +
		`"event_type":"a\u001b[2J","source":"` + "\u009b" + `","sdk_name":"x","sdk_version":"1"}`}
	check := func(what, text string) {
		t.Helper()
		for i, r := range text {
			if r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x202e || r == 0xfffd && text[i] != 0xef {
				t.Errorf("%s: %q comes through: %q", what, r, text[max(0, i-40):min(len(text), i+20)])
				return
			}
		}
	}
	var table bytes.Buffer
	n, err := WriteTable(&table, Events(t.Context(), b, Filter{Layers: []string{"kernel", "sdk"}}))
	if err != nil {
		t.Fatal(err)
	}
	check("table", table.String())
	if lines := strings.Count(table.String(), "\n"); lines != n+1 {
		t.Errorf("%d events make %d lines", n, lines)
	}
	s, err := Summarize(t.Context(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := s.WriteText(&text, Page{}); err != nil {
		t.Fatal(err)
	}
	check("summary", text.String())
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if _, err := WriteTable(&out,
		Events(t.Context(), sample(), Filter{Process: "curl", Descendants: true})); err != nil {
		t.Fatal(err)
	}
	want := `        TIME      PID  KIND           RESULT     WHAT
    4.000000       11  exec           -          /usr/bin/curl  curl 'https://api.example.com/a b'
    5.000000       12  fork           -          from pid 0
    6.000000       12  exec           -          /usr/lib/helper  helper
    7.000000       11  connect        ok         203.0.113.1:443 (api.example.com)
    8.000000       12  openat         EACCES     /etc/shadow  r
    9.000000       11  exit           exit 7     
   17.000000       11  flow           -          203.0.113.1:443 (api.example.com)  out 100 B  in 4.9 KiB
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// What is known of a path is told beside it.
func TestMarksAreShown(t *testing.T) {
	gone := begin(schema.KindExec, 10, 2, 1, "/tmp/a", "a")
	gone.Marks = schema.MarkDeleted
	cut := ev(schema.KindOpen, 2, "/d/e")
	cut.Marks, cut.Truncated = schema.MarkMemfd|schema.MarkUnreachable, schema.FieldValue
	nameless := ev(schema.KindOpen, 2, "")
	nameless.Marks = schema.MarkUnreadable
	b := bundle(begin(schema.KindFork, 10, 1, 0, ""), gone, cut, nameless)
	var out bytes.Buffer
	if _, err := WriteTable(&out, Events(t.Context(), b, Filter{Kinds: []string{"exec", "openat"}})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/tmp/a (deleted)  a\n", "/d/e (memfd,unreachable,truncated)  r\n",
		" (unreadable)  r\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	s, err := Summarize(t.Context(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Commands.Items[0].Exe; got != "/tmp/a (deleted)" {
		t.Errorf("the command is %q", got)
	}
}
