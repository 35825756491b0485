package schema

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compileSchema(t testing.TB, path string) *jsonschema.Schema {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:test", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t testing.TB, s *jsonschema.Schema, line []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if err := s.Validate(v); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

const (
	v1Schema = "json/kernel_event.v1.schema.json"
	v0Schema = "../testdata/contracts/kernel-event-v0.schema.json"
)

func openEvent() KernelEvent {
	return KernelEvent{
		RunID: "run_01JABCDEFGHJKMNPQRSTVWXYZ0", Seq: 123456, TNS: 1234567890, Kind: KindOpen, PID: 4321, TID: 4321,
		ExecID: 17,
		Value:  "/home/user/project/src/internal/module/file_0001.go", Flags: 0o2000000, HasResult: true, Result: 3,
	}
}

// cases name every shape of line that the recorder writes.
func cases() map[string]KernelEvent {
	base := openEvent()
	with := func(f func(*KernelEvent)) KernelEvent { e := base; f(&e); return e }
	kind := func(k KernelKind, value string) KernelEvent {
		return KernelEvent{RunID: "run_1", Seq: 7, TNS: 5, Kind: k, PID: 9, TID: 9, ExecID: 2, Value: value}
	}
	m := map[string]KernelEvent{
		"an open for reading":                base,
		"an open by another thread":          with(func(e *KernelEvent) { e.TID = 4322 }),
		"an open that creates with mode 0":   with(func(e *KernelEvent) { e.Flags = 0o1101 }),
		"an open that creates":               with(func(e *KernelEvent) { e.Flags, e.Mode = 0o3301, 0o644 }),
		"an open with resolve flags":         with(func(e *KernelEvent) { e.Resolve = 8 }),
		"a failed open from user memory":     with(func(e *KernelEvent) { e.Result, e.UserMemory = -2, true }),
		"a failed open by the kernel's copy": with(func(e *KernelEvent) { e.Result, e.KernelCopy = -2, true }),
		"an unknown error number":            with(func(e *KernelEvent) { e.Result = -4000 }),
		"an impossible access mode":          with(func(e *KernelEvent) { e.Flags = 3 }),
		"an open without a result":           with(func(e *KernelEvent) { e.HasResult, e.Result = false, 0 }),
		"an open of nothing":                 with(func(e *KernelEvent) { e.Value = "" }),
		"coalesced repeats": with(func(e *KernelEvent) {
			e.Repeat, e.Count, e.TFirstNS, e.TLastNS = true, 300000, 5, 99
		}),
		"one coalesced repeat at time 0": with(func(e *KernelEvent) { e.Repeat, e.Count = true, 1 }),
		"loader noise":                   with(func(e *KernelEvent) { e.Class = ClassLoader }),
		"a time before the run":          with(func(e *KernelEvent) { e.TNS = -5 }),
		"quotes, newlines and escapes": with(func(e *KernelEvent) {
			e.Value = "/a\"b\\c\nd\x1b[31m\x7f\u0085\u2028é😀"
		}),
		"a path that is not UTF-8":  with(func(e *KernelEvent) { e.Value = "/a\xff\xfeb\xc3" }),
		"a path with a real U+FFFD": with(func(e *KernelEvent) { e.Value = "/a\uFFFDb" }),
		"a truncated path":          with(func(e *KernelEvent) { e.Truncated = FieldValue | FieldTarget }),
		"a name that led elsewhere": with(func(e *KernelEvent) {
			e.Given, e.TargetGiven, e.Marks = "a/../b", "l/\xff", MarkUnresolved
		}),
		"an open that made the file":       with(func(e *KernelEvent) { e.Created = true }),
		"a name that another could change": with(func(e *KernelEvent) { e.Claimed = true }),
		"a way that another could change":  with(func(e *KernelEvent) { e.DirectoryClaimed = true }),
		"a deleted file in memory":         with(func(e *KernelEvent) { e.Marks = MarkDeleted | MarkMemfd }),
		"bound to a tool call, late": with(func(e *KernelEvent) {
			e.ToolCallID, e.BoundBy, e.Late = "tc_1", "env", true
		}),
		"an event of a check": with(func(e *KernelEvent) { e.Class = ClassCheck }),
		"a kind nobody knows": kind(999, ""),
		"a rename to a name that is not UTF8": func() KernelEvent {
			e := kind(KindRename, "/a")
			e.Target = "/b\x80"
			return e
		}(),
	}
	e := kind(KindExec, "/usr/bin/env")
	e.PPID, e.ParentExecID, e.CgroupID = 8, 1, 77
	e.Target, e.Cwd, e.Argv, e.EnvKeys = "env", "/home/\xe9", []string{"env", "", "a\xff", "b"}, []string{}
	m["an exec with empty and wrong arguments"] = e
	e.Class, e.Check, e.Baseline = ClassCheck, "tests \"pass\"", true
	m["an exec of a baseline check"] = e
	e.Check, e.Baseline = "tests_pass", false
	m["an exec of a check"] = e
	e = kind(KindExit, "")
	e.WaitStatus = 3 << 8
	m["an exit"] = e
	e.WaitStatus = 11 | 0x80
	m["a death with a core dump"] = e
	e.WaitStatus = 40
	m["a death of a real-time signal"] = e
	e = kind(KindConnectBlocked, "[2001:db8::1]:25")
	e.CgroupID, e.RuleID = 123456789, 7
	m["a blocked connect"] = e
	e = kind(KindFlow, "203.0.113.10:443")
	e.Protocol, e.Local, e.Names, e.BytesIn, e.BytesOut = "tcp", "10.0.0.2:5555", []string{"a.example", "b.example"},
		10, 20
	m["a flow"] = e
	e = kind(KindDNS, "example.com")
	e.Protocol, e.Remote = "udp", "10.0.0.1:53"
	e.DNS = &DNSMessage{Type: "A", Response: true, RCode: "NOERROR",
		Answers: []DNSAnswer{{"example.com", "CNAME", "x.example"}, {"x.example", "A", "203.0.113.10"},
			{"x", "TXT", ""}}}
	m["a DNS answer"] = e
	e = kind(KindSetID, "")
	e.Call, e.Args, e.HasResult, e.Result = "setresuid", []uint64{0, 1<<64 - 1, 5}, true, -1
	m["a failed setresuid"] = e
	for _, k := range Kinds() {
		m["kind "+k.String()] = kind(k, "/x")
	}
	return m
}

func TestKernelEventSurvivesTheLine(t *testing.T) {
	s := compileSchema(t, v1Schema)
	for name, want := range cases() {
		t.Run(name, func(t *testing.T) {
			line := AppendJSON(nil, &want)
			validate(t, s, line)
			var got KernelEvent
			if err := DecodeKernelEvent(line, &got); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: written and read (-want +got):\n%s", line, diff)
			}
		})
	}
}

// Each field of an event changes its line.
func TestEveryFieldIsWritten(t *testing.T) {
	derived := map[string]bool{"V0": true} // how a line was read
	// what is written only together with something else
	with := map[string]func(*KernelEvent){
		"Created": func(e *KernelEvent) { e.Kind = KindOpen },
		"Result":  func(e *KernelEvent) { e.HasResult = true },
		"Count":   func(e *KernelEvent) { e.Repeat = true }, "TFirstNS": func(e *KernelEvent) { e.Repeat = true },
		"TLastNS":    func(e *KernelEvent) { e.Repeat = true },
		"WaitStatus": func(e *KernelEvent) { e.Kind = KindExit },
	}
	for i := range reflect.TypeFor[KernelEvent]().NumField() {
		name := reflect.TypeFor[KernelEvent]().Field(i).Name
		if derived[name] {
			continue
		}
		var e KernelEvent
		if with[name] != nil {
			with[name](&e)
		}
		without := string(AppendJSON(nil, &e))
		switch f := reflect.ValueOf(&e).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int64:
			f.SetInt(1)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			f.SetUint(1)
		}
		if string(AppendJSON(nil, &e)) == without {
			t.Errorf("%s is not written: %s", name, without)
		}
	}
}

func TestLinesHoldNoControlCharacters(t *testing.T) {
	for name, e := range cases() {
		if i := bytes.IndexFunc(AppendJSON(nil, &e), func(r rune) bool {
			return r < 0x20 || r >= 0x7f && r < 0xa0
		}); i >= 0 {
			t.Errorf("%s: one at %d", name, i)
		}
	}
}

func TestKindsAndNamesGoBothWays(t *testing.T) {
	seen := map[string]bool{}
	for k := KernelKind(0); k < 300; k++ {
		s := k.String()
		if got, ok := ParseKind(s); !ok || got != k || seen[s] {
			t.Errorf("kind %d is %q, which reads as %d, %v", k, s, got, ok)
		}
		seen[s] = true
	}
	for n := int64(1); n < 140; n++ {
		if got, ok := ParseErrno(errnoName(n)); !ok || got != n {
			t.Errorf("errno %d is %q, which reads as %d, %v", n, errnoName(n), got, ok)
		}
	}
	for k, want := range map[KernelKind]string{1: "openat", 2: "connect", 4: "exec", 10: "file_blocked",
		20: "connect_blocked", 5: "event_5"} {
		if k.String() != want {
			t.Errorf("v0's kind %d is %q, want %q", k, k, want)
		}
	}
	for _, s := range []string{"", "event_1", "event_x", "event_99999", "event_05", "OPENAT"} {
		if k, ok := ParseKind(s); ok {
			t.Errorf("%q reads as kind %d", s, k)
		}
	}
}

func TestAppendJSONAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 4096)
	for name, e := range cases() {
		if n := testing.AllocsPerRun(100, func() {
			buf = AppendJSON(buf[:0], &e)
		}); n > 0 && !strings.Contains(name, "nobody") && !strings.Contains(name, "real-time") {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzKernelEventString(f *testing.F) {
	s := compileSchema(f, v1Schema)
	f.Add("/etc/passwd", "x", int64(3), uint64(0))
	f.Add("/a\xff\n\x00\u2028", "\xed\xa0\x80", int64(-2), uint64(577))
	f.Fuzz(func(t *testing.T, value, arg string, result int64, flags uint64) {
		want := KernelEvent{RunID: "r", Kind: KindOpen, Value: value, Argv: []string{arg, value}, Flags: flags,
			HasResult: true, Result: result}
		line := AppendJSON(nil, &want)
		if bytes.IndexFunc(line, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) >= 0 {
			t.Fatalf("a control character in %q", line)
		}
		validate(t, s, line)
		var got KernelEvent
		if err := DecodeKernelEvent(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %s", line, diff)
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	e := openEvent()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendJSON(buf[:0], &e)
	}
}
