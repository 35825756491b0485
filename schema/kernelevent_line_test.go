package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeKernelEventRefuses(t *testing.T) {
	ev := openEvent()
	good := string(AppendJSON(nil, &ev))
	edit := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s has no %q", good, old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, line := range map[string]string{
		"nothing":                       "",
		"a torn line":                   good[:len(good)-9],
		"two objects":                   good + good,
		"an unknown key":                edit(`"pid":`, `"colour":"red","pid":`),
		"a repeated key":                edit(`"pid":`, `"pid":1,"pid":`),
		"another schema":                edit("kernel_event.v1", "kernel_event.v2"),
		"no seq":                        edit(`"seq":123456,`, ""),
		"no t_ns":                       edit(`"t_ns":1234567890,`, ""),
		"a negative pid":                edit(`"pid":`, `"pid":-`),
		"a pid that does not fit":       edit(`"pid":4321`, `"pid":99999999999`),
		"a fraction":                    edit(`"pid":4321`, `"pid":4321.5`),
		"a kind that is not its number": edit(`"kind":"openat"`, `"kind":"connect"`),
		"a status that is not its":      edit(`"status":"success"`, `"status":"error"`),
		"a made-up status":              edit(`"status":"success"`, `"status":"maybe"`),
		"an access mode not its":        edit(`"access_mode":"read"`, `"access_mode":"write"`),
		"an errno of a success":         edit(`"status"`, `"errno":"ENOENT","status"`),
		"a class nobody knows":          edit(`"status"`, `"class":"noise","status"`),
		"half a repeat":                 edit(`"status":"success"`, `"status":"success","count":5`),
		"raw that contradicts":          edit(`"status":"success"`, `"status":"success","raw":{"value":"/w=="}`),
		"raw of a field that is UTF-8": edit("/home/user/project/src/internal/module/file_0001.go\"",
			"/x\",\"raw\":{\"value\":\"L3g=\"}"),
		"raw of no field":          edit(`"status":"success"`, `"status":"success","raw":{"argv.0":"/w=="}`),
		"bytes that are not UTF-8": edit("/home", "/ho\xffme"),
	} {
		var e KernelEvent
		if err := DecodeKernelEvent([]byte(line), &e); err == nil {
			t.Errorf("%s is accepted: %s", name, line)
		}
	}
}

// Keys may stand in any order, with white space between them and escapes in them.
func TestDecodeKernelEventReadsAnyJSON(t *testing.T) {
	for name, want := range cases() {
		line := AppendJSON(nil, &want)
		var members map[string]json.RawMessage
		if err := json.Unmarshal(line, &members); err != nil {
			t.Fatal(err)
		}
		loose := []byte("{ ")
		for _, key := range slices.Backward(slices.Sorted(maps.Keys(members))) {
			if len(loose) > 2 {
				loose = append(loose, " ,\n"...)
			}
			loose = fmt.Appendf(loose, "\"\\u%04x%s\"\t: %s", key[0], key[1:], members[key])
		}
		loose = append(loose, " }\r\n"...)
		var got KernelEvent
		if err := DecodeKernelEvent(loose, &got); err != nil {
			t.Errorf("%s: %s: %v", name, loose, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestMembersAreThoseOfTheSchemas: each form has the members that its JSON Schema has, and needs those that it needs.
func TestMembersAreThoseOfTheSchemas(t *testing.T) {
	named := func(in forms) (names []string) {
		for _, m := range kernelMembers {
			if m.in&in == in {
				names = append(names, m.name())
			}
		}
		slices.Sort(names)
		return names
	}
	for id, form := range map[string]struct{ has, needs forms }{KernelEventV0: {inV0, neededV0},
		KernelEventV1: {v1Only, neededV1}} {
		src, err := JSONSchema(id)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
		}
		if err := json.Unmarshal(src, &doc); err != nil {
			t.Fatal(err)
		}
		slices.Sort(doc.Required)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(doc.Properties)), named(form.has)); diff != "" {
			t.Errorf("%s: members (-schema +table):\n%s", id, diff)
		}
		if diff := cmp.Diff(doc.Required, named(form.needs)); diff != "" {
			t.Errorf("%s: needed members (-schema +table):\n%s", id, diff)
		}
	}
	if name := kernelMembers[commonMembers].name(); name != "ppid" {
		t.Errorf("the first rare member is %s, not ppid", name)
	}
}

// TestASetHasMoreThan64Members: the members of both words of a set are told apart.
func TestASetHasMoreThan64Members(t *testing.T) {
	var set, low, high members
	low.add(3)
	high.add(64 + 3)
	set.add(64 + 3)
	if set.hasPlace(3) || !set.hasPlace(64+3) || set.has(low) || !set.has(high) {
		t.Errorf("%b has 3: %t, %t; has 67: %t, %t", set, set.hasPlace(3), set.has(low), set.hasPlace(64+3),
			set.has(high))
	}
	if set.firstNotIn(&high) != "" || low.firstNotIn(&set) != kernelMembers[3].name() {
		t.Errorf("not in the other: %q and %q, want none and %q", set.firstNotIn(&high), low.firstNotIn(&set),
			kernelMembers[3].name())
	}
}

// TestDecodeKernelEventNamesTheFault: a line that is no JSON, or repeats a key, is
// told from one that its schema refuses.
func TestDecodeKernelEventNamesTheFault(t *testing.T) {
	ev := openEvent()
	good := string(AppendJSON(nil, &ev))
	var e KernelEvent
	for line, want := range map[string]error{
		good[:9]: ErrSyntax, good + "x": ErrSyntax, strings.Replace(good, "openat", "open\xffat", 1): ErrSyntax,
		strings.Replace(good, "}", `,"pid":1}`, 1): ErrDuplicateKey,
		strings.Replace(good, "openat", "fork", 1): ErrSchema,
		strings.Replace(good, "4321", "4321.0", 1): ErrSchema,
		strings.Replace(good, "}", `,"dns":7}`, 1): ErrSchema,
		`[]`: ErrSchema, `7`: ErrSchema,
	} {
		if err := DecodeKernelEvent([]byte(line), &e); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", line, err, want)
		}
	}
}

// openLineV0 is a line of the closed v0 form.
const openLineV0 = `{"schema":"assay.runner.kernel_event.v0","run_id":"run_1","seq":0,"pid":1234,"event_type":1,"kind":"openat","value":"/x","flags":577,"mode":420,"return_value":4,"access_mode":"write","operation_flags":["create","truncate"],"status":"success"}`

// FuzzDecodeKernelEvent holds the decoder against the JSON Schemas, by way of a
// validator that is not ours: it accepts what they accept, but for numbers that do
// not fit and for values that contradict each other.
func FuzzDecodeKernelEvent(f *testing.F) {
	oracles := []func([]byte) error{otherValidator(f, KernelEventV1), otherValidator(f, KernelEventV0)}
	for _, e := range cases() {
		f.Add(AppendJSON(nil, &e))
	}
	for _, line := range lineSeeds() {
		f.Add([]byte(line))
	}
	ev := openEvent()
	for _, more := range []string{
		`"errno":"EPERM"`, `"count":1`, `"count":0,"t_first_ns":0,"t_last_ns":0`, `"class":"agent"`, `"class":"noise"`,
		`"late":false`, `"late":true`,
		`"path_source":"kernel_object"`, `"path_source":"kernel_copy"`, `"tid":0`, `"tid":4294967296`, `"exec_id":0`,
		`"marks":[]`, `"marks":["memfd","deleted"]`, `"marks":["memfd","memfd"]`,
		`"operation_flags":[]`, `"argv":null`, `"argv":[1]`, `"args":[-1]`, `"args":[]`, `"dns":{}`,
		`"dns":{"type":"A","answers":[]}`,
		`"dns":{"type":"A","response":false}`, `"dns":{"type":"A","more":1}`, `"raw":{}`, `"raw":{"value":""}`,
		`"raw":{"argv.":"/w=="}`, `"raw":{"x":"/w=="}`,
		`"exit_code":256`, `"exit_code":1,"signal":"SIGHUP"`, `"signal":"SIGNONE"`, `"core_dumped":true`,
		`"phase":"baseline"`, `"check":""`, `"rule_id":0`,
		`"cgroup_id":0`, `"network_port":1`, `"network_destination":""`, `"t_first_ns":18446744073709551615`,
		`"bytes_in":1e3`, `"resolve":0`, `"names":[]`, `"seq":-0`,
	} {
		f.Add([]byte(strings.Replace(string(AppendJSON(nil, &ev)), `,"value"`, ","+more+`,"value"`, 1)))
		f.Add([]byte(strings.Replace(openLineV0, `,"value"`, ","+more+`,"value"`, 1)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var d kernelDecoder
		err := d.line(line, &KernelEvent{})
		schemaErr := oracles[0](line)
		if schemaErr != nil && oracles[1](line) == nil {
			schemaErr = nil
		}
		switch {
		case err == nil && schemaErr != nil:
			t.Fatalf("%s: only the decoder accepts it: %v", line, schemaErr)
		case err != nil && schemaErr == nil && !errors.Is(err, errContradiction) && !errors.Is(err, errRange):
			t.Fatalf("%s: the schema accepts it, and the decoder says %v", line, err)
		case (err == nil) != (DecodeKernelEvent(line, &KernelEvent{}) == nil):
			t.Fatalf("%s: two answers", line)
		}
		if err == nil && !d.e.V0 {
			again := AppendJSON(nil, d.e)
			second := KernelEvent{}
			if err := DecodeKernelEvent(again, &second); err != nil {
				t.Fatalf("%s: written again as %s: %v", line, again, err)
			}
		}
	})
}

func BenchmarkDecodeKernelEvent(b *testing.B) {
	open := openEvent()
	for name, e := range map[string]KernelEvent{"open": open, "exec": cases()["an exec with empty and wrong arguments"],
		"flow": cases()["a flow"]} {
		line := AppendJSON(nil, &e)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := DecodeKernelEvent(line, &e); err != nil {
					b.Fatalf("%s: %v", line, err)
				}
			}
		})
	}
}
