package agentlog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
)

const sdkLine = `{"schema":"assay.runner.sdk_event.v0","run_id":"run_1","seq":3,"event_type":"tool_call_started","source":"s","sdk_name":"n","sdk_version":"1","tool_call_id":"tc_1","tool":"read_file"}`

const decisionLine = `{"specversion":"1.0","type":"assay.tool.decision","source":"assay://run","time":"2026-01-01T00:00:00Z","data":{"tool":"read_file","decision":"allow","reason_code":"X","tool_call_id":"tc_1"}}`

func TestDecodeSDK(t *testing.T) {
	base := schema.SDKEvent{
		Schema: schema.SDKEventV0, RunID: "run_1", Seq: 3, EventType: "tool_call_started", Source: "s", SDKName: "n",
		SDKVersion: "1", ToolCallID: "tc_1", Tool: "read_file",
	}
	with := func(f func(*schema.SDKEvent)) *schema.SDKEvent { e := base; f(&e); return &e }
	for _, c := range []struct {
		name, from, to string
		want           *schema.SDKEvent
		err            string
	}{
		{"as it should be", "", "", &base, ""},
		{"keys that are not known", `"seq":3`, `"seq":3,"arguments":{"path":"/etc"}`, &base, ""},
		{"null for what may be missing", `"sdk_version":"1"`, `"sdk_version":null`, with(func(e *schema.SDKEvent) {
			e.SDKVersion = ""
		}), ""},
		{"a timestamp", `"seq":3`, `"seq":3,"timestamp":"2026-01-01"`, with(func(e *schema.SDKEvent) {
			e.Timestamp = "2026-01-01"
		}), ""},
		{"a timestamp that is a number", `"seq":3`, `"seq":3,"timestamp":17.5`, with(func(e *schema.SDKEvent) {
			e.Timestamp = "17.5"
		}), ""},
		{"a timestamp that is a world", `"seq":3`, `"seq":3,"timestamp":{}`, &base, ""},
		{"a command", `"seq":3`, `"seq":3,"argv":["bash","-lc","ls"]`, with(func(e *schema.SDKEvent) {
			e.Argv = []string{"bash", "-lc", "ls"}
		}), ""},
		{"a command that is no list", `"seq":3`, `"seq":3,"argv":"ls"`, nil, "not a JSON object of the expected form"},
		{"a command with a NUL", `"seq":3`, `"seq":3,"argv":["l\u0000s"]`, nil, "argv contains a NUL byte"},
		{"a command that is too long", `"seq":3`, `"seq":3,"argv":["` + strings.Repeat("x", 16<<10+1) + `"]`, nil,
			"argv has 16385 bytes: at most 16384 are allowed"},
		{"a span", `"seq":3`, `"seq":3,"span_id":"00F067aa0ba902b7"`, with(func(e *schema.SDKEvent) {
			e.SpanID = "00f067aa0ba902b7"
		}), ""},
		{"a traceparent", `"seq":3`, `"seq":3,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`,
			with(func(e *schema.SDKEvent) { e.SpanID = "00f067aa0ba902b7" }), ""},
		{"the end of a run without a call",
			`"tool_call_started","source":"s","sdk_name":"n","sdk_version":"1","tool_call_id":"tc_1","tool":"read_file"`, `"run_finished","source":"s"`,
			&schema.SDKEvent{Schema: schema.SDKEventV0, RunID: "run_1", Seq: 3, EventType: "run_finished", Source: "s"},
			""},

		{"another schema", "sdk_event.v0", "sdk_event.v1", nil,
			`schema is "assay.runner.sdk_event.v1": want "assay.runner.sdk_event.v0"`},
		{"no schema", `"schema":"assay.runner.sdk_event.v0",`, "", nil, "schema is missing"},
		{"another run", "run_1", "run_2", nil, `run_id is "run_2": want "run_1"`},
		{"no seq", `"seq":3,`, "", nil, "seq is missing"},
		{"a negative seq", `"seq":3`, `"seq":-3`, nil, "not a JSON object of the expected form"},
		{"a seq that is a string", `"seq":3`, `"seq":"3"`, nil, "not a JSON object of the expected form"},
		{"a fractional seq", `"seq":3`, `"seq":3.5`, nil, "not a JSON object of the expected form"},
		{"another event", "tool_call_started", "tool_call_paused", nil,
			`event_type is "tool_call_paused": want one of tool_call_started, tool_call_completed, run_finished, run_failed`},
		{"no source", `"source":"s",`, "", nil, "source is missing"},
		{"no call id", `"tool_call_id":"tc_1",`, "", nil, "tool_call_id is missing"},
		{"a blank call id", `"tc_1"`, `" "`, nil, "tool_call_id is missing"},
		{"a call id that is null", `"tc_1"`, `null`, nil, "tool_call_id is missing"},
		{"a call id that is a number", `"tc_1"`, `1`, nil, "not a JSON object of the expected form"},
		{"a call id with a NUL", `"tc_1"`, `"tc\u0000"`, nil, "tool_call_id contains a NUL byte"},
		{"a call id that is too long", `"tc_1"`, `"` + strings.Repeat("x", 129) + `"`, nil,
			"tool_call_id has 129 bytes: at most 128 are allowed"},
		{"no tool", `,"tool":"read_file"`, "", nil, "tool is missing"},
		{"a key twice", `"seq":3`, `"seq":3,"seq":4`, nil, "duplicate"},
		{"a key that is not known twice", `"seq":3`, `"seq":3,"x":1,"x":2`, nil, "duplicate"},
		{"a span that is none", `"seq":3`, `"seq":3,"span_id":"0000000000000000"`, nil, "span_id is not"},
		{"a traceparent that is none", `"seq":3`, `"seq":3,"traceparent":"zz"`, nil, "traceparent is not"},
		{"not UTF-8", "read_file", "read\xff", nil, "not a JSON object of the expected form"},
		{"two values", `"read_file"}`, `"read_file"}{}`, nil, "not a JSON object of the expected form"},
		{"an array", sdkLine, `[]`, nil, "not a JSON object of the expected form"},
		{"no JSON", sdkLine, "\x1b[31mboo", nil, "not a JSON object of the expected form"},
		{"torn", `,"tool":"read_file"}`, ``, nil, "not a JSON object of the expected form"},
		{"deep", sdkLine, strings.Repeat("[", 100_000), nil, "not a JSON object of the expected form"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(sdkLine, c.from) {
				t.Fatalf("%q is not in the line", c.from)
			}
			var e schema.SDKEvent
			err := agentlog.DecodeSDK([]byte(strings.Replace(sdkLine, c.from, c.to, min(1, len(c.from)))), "run_1", &e)
			check(t, err, c.err)
			if c.want != nil {
				if diff := cmp.Diff(c.want, &e); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestDecodeDecision(t *testing.T) {
	base := schema.PolicyEvent{
		Schema: schema.PolicyEventV0, RunID: "run_1", SourceEventType: "assay.tool.decision", Source: "assay://run",
		ToolCallID: "tc_1", Tool: "read_file", Decision: "allow",
	}
	for _, c := range []struct{ name, from, to, err string }{
		{"as it should be", "", "", ""},
		{"only what is needed", `"specversion":"1.0",`, "", ""},
		{"another type", "assay.tool.decision", "assay.tool.other", `type is "assay.tool.other"`},
		{"no type", `"type":"assay.tool.decision",`, "", "type is missing"},
		{"no source", `"source":"assay://run",`, "", "source is missing"},
		{"the gateway's source", "assay://run", "assay-run:gateway", "which only the run's own gateway may use"},
		{"no data", `"data"`, `"date"`, "data is missing"},
		{"no tool", `"tool":"read_file",`, "", "data.tool is missing"},
		{"no decision", `"decision":"allow",`, "", "data.decision is missing"},
		{"no call id", `,"tool_call_id":"tc_1"`, "", "data.tool_call_id is missing"},
		{"a key twice", `"tool":`, `"tool":"x","tool":`, "duplicate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e schema.PolicyEvent
			err := agentlog.DecodeDecision([]byte(strings.Replace(decisionLine, c.from, c.to, min(1, len(c.from)))),
				"run_1", &e)
			check(t, err, c.err)
			if c.err == "" {
				if diff := cmp.Diff(&base, &e); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error is %v, want one with %q", err, want)
	}
	if strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 500 {
		t.Errorf("error %q is not fit for a terminal", err)
	}
}

// The decoders accept any input, and an accepted line is valid in the layer's schema.
func FuzzDecodeSDK(f *testing.F) {
	f.Add([]byte(sdkLine))
	f.Add([]byte(`{"seq":18446744073709551615}`))
	layer := schema.NewLineDecoder(schema.SDKPath)
	f.Fuzz(func(t *testing.T, line []byte) {
		var e schema.SDKEvent
		if agentlog.DecodeSDK(line, "run_1", &e) == nil {
			e.Seq = 0
			written(t, layer, &e)
		}
	})
}

func FuzzDecodeDecision(f *testing.F) {
	f.Add([]byte(decisionLine))
	layer := schema.NewLineDecoder(schema.PolicyPath)
	f.Fuzz(func(t *testing.T, line []byte) {
		var e schema.PolicyEvent
		if agentlog.DecodeDecision(line, "run_1", &e) == nil {
			written(t, layer, &e)
		}
	})
}

func written(t *testing.T, layer *schema.LineDecoder, e any) {
	line, err := schema.Line(e)
	if err == nil {
		_, err = layer.Decode(line[:len(line)-1])
	}
	if err != nil {
		t.Errorf("accepted, and then %v", err)
	}
}
