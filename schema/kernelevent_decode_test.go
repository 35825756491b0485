package schema

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFastPathTakesTheCommonLines(t *testing.T) {
	for _, name := range []string{"an open for reading", "an open that creates", "a failed open from user memory", "coalesced repeats", "loader noise"} {
		e := cases()[name]
		var got KernelEvent
		if !decodeFast(AppendJSON(nil, &e), &got) {
			t.Errorf("%s is not read by the fast path", name)
		}
	}
}

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
		"raw of a field that is UTF-8":  edit("/home/user/project/src/internal/module/file_0001.go\"", "/x\",\"raw\":{\"value\":\"L3g=\"}"),
		"raw of no field":               edit(`"status":"success"`, `"status":"success","raw":{"argv.0":"/w=="}`),
		"bytes that are not UTF-8":      edit("/home", "/ho\xffme"),
	} {
		var e KernelEvent
		if err := DecodeKernelEvent([]byte(line), &e); err == nil {
			t.Errorf("%s is accepted: %s", name, line)
		}
	}
}

func FuzzDecodeKernelEvent(f *testing.F) {
	for _, e := range cases() {
		f.Add(AppendJSON(nil, &e))
		line, _ := AppendJSONv0(nil, &e)
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var fast, slow KernelEvent
		slowErr := decodeSlow(line, &slow)
		if decodeFast(line, &fast) {
			if slowErr != nil {
				t.Fatalf("%s: only the fast path accepts it: %v", line, slowErr)
			}
			if diff := cmp.Diff(slow, fast); diff != "" {
				t.Fatalf("%s: %s", line, diff)
			}
		}
		if slowErr == nil {
			again := AppendJSON(nil, &slow)
			var second KernelEvent
			if err := DecodeKernelEvent(again, &second); err != nil {
				t.Fatalf("%s: written again as %s: %v", line, again, err)
			}
		}
	})
}

func BenchmarkDecodeKernelEvent(b *testing.B) {
	e := openEvent()
	line := AppendJSON(nil, &e)
	for name, decode := range map[string]func([]byte, *KernelEvent) bool{
		"fast": decodeFast,
		"slow": func(l []byte, e *KernelEvent) bool { return decodeSlow(l, e) == nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !decode(line, &e) {
					b.Fatalf("%s: not read", line)
				}
			}
		})
	}
}
