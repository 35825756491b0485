package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
)

// exported converts a bundle of a run with a tool call, a connection, a denial
// and a check.
func exported(t *testing.T, format string) []byte {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: one of the programs acts as another user, and all are observed")
	}
	contract := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(contract,
		[]byte("description: x\nchecks: [{name: made, command: test -s made}, {name: missing, command: "+
			"test -s missing}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	bundle := record(t, false, `
line() { echo "{\"schema\":\"$ASSAY_RUNNER_SDK_EVENT_SCHEMA\",\"run_id\":\"$ASSAY_RUNNER_RUN_ID\",\"source\":\"sh\",\"tool\":\"read_file\",\"seq\":$1,\"event_type\":\"tool_call_$2\",\"tool_call_id\":\"tc_1\"}" >> "$ASSAY_RUNNER_SDK_EVENT_LOG"; }
line 0 started
`+program+` call --id tc_1 -- sh -c 'echo x > made'
line 1 completed
setpriv --reuid 65534 --clear-groups cat /etc/shadow
bash -c 'echo > /dev/tcp/127.0.0.1/9'
printf 'bad\377name' | xargs -0 touch
exit 0`, "--workdir", work, "--contract", contract, "--agent-shim", "openai-agents", "--sdk-event-log",
		filepath.Join(work, "sdk.ndjson"), "--label", "task=x")
	out := filepath.Join(t.TempDir(), "out")
	if code := Main([]string{"export", "-q", "--format", format, "-o", out, bundle}, os.Stdin, os.Stdout,
		os.Stderr); code != 0 {
		t.Fatalf("export exited with %d", code)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// program is assay-run, as the recorded shell finds it.
const program = `"$ASSAY_TEST_PROGRAM"`

// TestOTLPIsTheCollectorsProto reads the export back with OpenTelemetry's own
// message types, unknown fields refused.
func TestOTLPIsTheCollectorsProto(t *testing.T) {
	doc := exported(t, "otlp")
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatal(err)
	}
	asProtobuf(v)
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var traces tracepb.TracesData
	if err := protojson.Unmarshal(doc, &traces); err != nil {
		t.Fatal(err)
	}
	spans := traces.ResourceSpans[0].ScopeSpans[0].Spans
	byID := map[string]*tracepb.Span{}
	for _, s := range spans {
		if len(s.SpanId) != 8 || len(s.TraceId) != 16 || s.EndTimeUnixNano < s.StartTimeUnixNano ||
			byID[string(s.SpanId)] != nil {
			t.Errorf("span %v", s)
		}
		byID[string(s.SpanId)] = s
	}
	tool, denied, connected := false, false, false
	for _, s := range spans[1:] {
		if byID[string(s.ParentSpanId)] == nil {
			t.Errorf("%s has no parent", s.Name)
		}
		attributes := map[string]string{}
		for _, a := range s.Attributes {
			attributes[a.Key] = a.Value.GetStringValue()
		}
		tool = tool || s.Name == "execute_tool read_file" && attributes["gen_ai.operation.name"] == "execute_tool" &&
			attributes["gen_ai.tool.call.id"] == "tc_1"
		for _, e := range s.Events {
			for _, a := range e.Attributes {
				denied = denied || a.Key == "error.type" &&
					strings.HasSuffix(attributes["process.executable.path"], "/cat")
				connected = connected || a.Key == "network.peer.port" && a.Value.GetIntValue() == 9
			}
		}
	}
	if !tool || !denied || !connected {
		t.Errorf("tool call %v, denial %v, connection %v", tool, denied, connected)
	}
	for _, a := range traces.ResourceSpans[0].Resource.Attributes {
		if a.Key == "assay.not_exported" && len(a.Value.GetArrayValue().GetValues()) > 2 {
			return
		}
	}
	t.Error("what is not exported is not said")
}

// asProtobuf writes ids as protobuf's JSON has them: OTLP's differs in that.
func asProtobuf(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if s, ok := x.(string); ok && (k == "traceId" || k == "spanId" || k == "parentSpanId") {
				raw, _ := hex.DecodeString(s)
				v[k] = base64.StdEncoding.EncodeToString(raw)
			}
			asProtobuf(x)
		}
	case []any:
		for _, x := range v {
			asProtobuf(x)
		}
	}
}

// fields decodes a protobuf message without a schema.
func fields(t *testing.T, b []byte) map[protowire.Number][]any {
	t.Helper()
	m := map[protowire.Number][]any{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		switch typ {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			m[num] = append(m[num], v)
			b = b[max(n, 0):]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			m[num] = append(m[num], v)
			b = b[n:]
		default:
			t.Fatalf("field %d of type %d", num, typ)
		}
	}
	return m
}

// TestPerfettoTraceIsSound checks what trace_processor asks of a trace: times in
// order, every event on a track that was described, every slice that begins ends.
func TestPerfettoTraceIsSound(t *testing.T) {
	doc := exported(t, "perfetto")
	ofPerfettosSchema(t, "Trace", doc)
	packets := fields(t, doc)[1]
	tracks, open := map[uint64]string{}, map[uint64]int{}
	var last uint64
	events := 0
	for i, p := range packets {
		f := fields(t, p.([]byte))
		if f[10][0] != uint64(1) || (i == 0) != (len(f[13]) == 1) {
			t.Fatalf("packet %d: sequence %v, flags %v", i, f[10], f[13])
		}
		if d := f[60]; d != nil {
			track := fields(t, d[0].([]byte))
			tracks[track[1][0].(uint64)] = string(track[2][0].([]byte))
			continue
		}
		at := f[8][0].(uint64)
		if at < last {
			t.Fatalf("packet %d is before the one before it", i)
		}
		last = at
		e := fields(t, f[11][0].([]byte))
		track := e[11][0].(uint64)
		if _, ok := tracks[track]; !ok {
			t.Errorf("packet %d is on no track", i)
		}
		switch e[9][0] {
		case uint64(1):
			open[track]++
		case uint64(2):
			open[track]--
		}
		if open[track] < 0 {
			t.Errorf("packet %d ends what did not begin on %s", i, tracks[track])
		}
		events++
	}
	for track, n := range open {
		if n != 0 {
			t.Errorf("%d slices of %s do not end", n, tracks[track])
		}
	}
	if events < 10 || len(tracks) < 4 {
		t.Errorf("%d events on %d tracks", events, len(tracks))
	}
}

// TestInTotoStatementIsOne reads the export with in-toto's own types.
func TestInTotoStatementIsOne(t *testing.T) {
	doc := exported(t, "in-toto")
	var s intoto.Statement
	if err := protojson.Unmarshal(doc, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	log := s.Predicate.AsMap()["monitorLog"].(map[string]any)
	if len(log["process"].([]any)) < 3 || len(log["network"].([]any)) == 0 || len(log["fileAccess"].([]any)) < 2 {
		t.Errorf("the log is %v", log)
	}
}

func TestJudgementsOfABundleAreOfTheirSchemas(t *testing.T) {
	for format, file := range map[string]string{"ctrf": "ctrf-schema-0.0.json", "sarif": "sarif-2.1.0-rtm.5.json"} {
		doc := exported(t, format)
		schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "archive", "render", "testdata",
			file))
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
		if err == nil {
			err = schema.Validate(v)
		}
		if err != nil {
			t.Errorf("%s: %v", format, err)
		}
		for _, want := range []string{"contract/missing", "run/ended_with_0", "observed/hosts", "call/read_file tc_1"} {
			if !bytes.Contains(doc, []byte(want)) {
				t.Errorf("%s has no %s", format, want)
			}
		}
	}
	doc := exported(t, "junit")
	if !bytes.Contains(doc, []byte(`<testcase name="contract/missing"`)) ||
		!bytes.Contains(doc, []byte(`<failure message="the check failed"`)) {
		t.Errorf("%s", doc)
	}
}
