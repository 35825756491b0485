package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

func TestGoldenContractsAreValid(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var head struct{ Schema string }
			if err := json.Unmarshal(b, &head); err != nil {
				t.Fatal(err)
			}
			if err := Validate(head.Schema, b); err != nil {
				t.Error(err)
			}
		})
	}
}

// The examples in a schema are documentation that must not rot.
func TestSchemaExamplesAreValid(t *testing.T) {
	for _, id := range schemaIDs() {
		src, err := JSONSchema(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := compiled(id); err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		var doc struct{ Examples []json.RawMessage }
		if err := json.Unmarshal(src, &doc); err != nil {
			t.Fatal(err)
		}
		for i, ex := range doc.Examples {
			if err := Validate(id, ex); err != nil {
				t.Errorf("%s: example %d: %v", id, i, err)
			}
		}
	}
}

func TestValidateTellsItsErrorsApart(t *testing.T) {
	for name, c := range map[string]struct {
		id, doc string
		want    error
	}{
		"an unknown schema":          {"assay.runner.nothing.v9", `{}`, ErrUnknownSchema},
		"an empty document":          {SDKEventV0, ``, ErrSyntax},
		"two documents":              {SDKEventV0, `{}{}`, ErrSyntax},
		"half a document":            {SDKEventV0, `{"schema":`, ErrSyntax},
		"invalid UTF-8":              {SDKEventV0, "{\"a\":\"\xff\"}", ErrSyntax},
		"a number that fills memory": {SDKEventV0, `{"seq":1e999999999}`, ErrSyntax},
		"a number too long":          {SDKEventV0, `{"seq":-1` + strings.Repeat("0", 300) + `}`, ErrSyntax},
		"the longest number":         {SDKEventV0, `{"seq":-1` + strings.Repeat("0", 299) + `}`, ErrSchema},
		"a key that is there twice":  {SDKEventV0, `{"seq":0,"seq":1}`, ErrDuplicateKey},
		"a key twice, deep down":     {SDKEventV0, `{"a":[{"b":0,"b":1}]}`, ErrDuplicateKey},
		"a key twice, once escaped":  {SDKEventV0, `{"seq":0,"s\u0065q":1}`, ErrDuplicateKey},
		"a missing property":         {SDKEventV0, `{"schema":"assay.runner.sdk_event.v0"}`, ErrSchema},
		"an added key of a closed v0": {KernelEventV0,
			`{"schema":"assay.runner.kernel_event.v0","run_id":"r","seq":0,"pid":1,"event_type":4,"kind":"exec","value":"/x","more":1}`, ErrSchema},
		"an added key of an open v0": {SDKEventV0,
			`{"schema":"assay.runner.sdk_event.v0","run_id":"r","seq":0,"event_type":"x","source":"","sdk_name":"","sdk_version":"","more":1}`, nil},
	} {
		if err := Validate(c.id, []byte(c.doc)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// TestIntegersArePlain: an integer that a reader of 64 bits does not take is none
// to the schema, in a document, in a line, and behind lines that were accepted.
func TestIntegersArePlain(t *testing.T) {
	const line = `{"schema":"assay.runner.call_event.v2","run_id":"r","seq":0,"ts":"2026-01-02T03:04:05Z","call_id":"01JABCDEFGHJKMNPQRSTVWXYZ0","tool_id":"x","granted_capabilities":[],"duration_ms":1,"outcome":{"kind":"success"},"tier":"t","dry_run":false,"schema_version":%s,"secrets_resolved":false,"cursor_page":%s%s}`
	decoder := NewLineDecoder(AuditPath)
	for _, c := range []struct {
		n       string
		integer bool
	}{
		{"2", true}, {"0", true}, {"-9223372036854775808", true}, {"18446744073709551615", true},
		{"2.0", false}, {"2e0", false}, {"-0", false}, {"0.0", false}, {"-9223372036854775809", false},
		{"18446744073709551616", false},
		{"1e300", false}, {"1" + strings.Repeat("0", 50), false}, {"-2.0", false}, {"2.5", false},
	} {
		for place, l := range map[string]string{
			"an integer":     fmt.Sprintf(line, "2", c.n, ""),
			"a constant":     fmt.Sprintf(line, c.n, "1", ""),
			"a key not ours": fmt.Sprintf(line, "2", "1", `,"more":`+c.n),
		} {
			want := place == "a key not ours" || place == "an integer" && c.integer ||
				place == "a constant" && c.n == "2"
			if err := Validate(CallEventV2, []byte(l)); (err == nil) != want {
				t.Errorf("%s %s: %v", place, c.n, err)
			}
			if _, err := decoder.Decode([]byte(l)); (err == nil) != want {
				t.Errorf("%s %s of a line: %v", place, c.n, err)
			}
		}
	}
}

// schemaIDs lists the identifiers that have a JSON Schema, sorted.
func schemaIDs() []string {
	entries, _ := schemaFiles.ReadDir("json")
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, "assay.runner."+strings.TrimSuffix(e.Name(), ".schema.json"))
	}
	return ids
}

// lineSeeds are lines of all layers, good and bad.
func lineSeeds() []string {
	lines := []string{
		`{"schema":"assay.runner.event.v0","run_id":"run_1","seq":0,"type":"run_started","t_ns":0,"agent_shim":"none","command":["/bin/true"],"env_keys":[],"window_elapsed_ms":0}`,
		`{"schema":"assay.runner.event.v0","run_id":"run_1","seq":1,"type":"run_finished","t_ns":9,"exit_code":0,"signal":null,"success":true,"window_elapsed_ms":3}`,
		`{"schema":"assay.runner.event.v0","run_id":"run_1","seq":2,"type":"leftovers_killed","count":1,"processes":[{"pid":3,"name":"x","serves":[8080]}]}`,
		`{"schema":"assay.runner.sdk_event.v0","run_id":"run_1","seq":0,"event_type":"x","source":"\u00e9\n","sdk_name":"é","sdk_version":"1"}`,
		`{"schema":"assay.runner.policy_event.v0","run_id":"run_1","seq":0,"source_event_type":"a","source":"b","tool_call_id":"c","tool":"d","decision":"allow"}`,
		`{"schema":"assay.runner.kernel_event.v0","run_id":"run_1","seq":7,"pid":1,"event_type":1,"kind":"openat","value":"/x","flags":577,"mode":420,"return_value":-2,"access_mode":"write","operation_flags":["create","truncate"],"status":"error"}`,
		`{"schema":"assay.runner.kernel_event.v0","run_id":"run_1","seq":8,"pid":1,"event_type":2,"kind":"openat","value":null}`,
		`{"schema":"assay.runner.kernel_event.v0","run_id":"run_1","seq":8.0,"pid":1,"event_type":999,"kind":"event_999","value":null,"resolve":0}`,
	}
	for _, e := range cases() {
		lines = append(lines, strings.TrimSuffix(string(AppendJSON(nil, &e)), "\n"))
	}
	for _, id := range schemaIDs() {
		src, _ := JSONSchema(id)
		var doc struct{ Examples []json.RawMessage }
		json.Unmarshal(src, &doc)
		for _, ex := range doc.Examples {
			line, _ := Line(ex)
			lines = append(lines, strings.TrimSuffix(string(line), "\n"))
		}
	}
	return lines
}

// FuzzLine holds that lines are decoded as their schema and the JSON library read them: what
// the schema refuses is refused, what it accepts is accepted, and the values are the same
// where they fit.
func FuzzLine(f *testing.F) {
	seeds := lineSeeds()
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	// Lines that are not JSON, or not what the schema asks.
	for _, value := range []string{
		"\"\xff\"", "\"\xed\xa0\x80\"", "\"a\x01\"", `"\x"`, `"\u00g0"`, `"\ud800"`, "\"a", "nul", "[]", "1", "{}",
	} {
		f.Add([]byte(strings.Replace(seeds[4], `"d"`, value, 1)))
	}
	for _, seq := range []string{"01", "-0", "-1", "1.5", "1e2", "0x1", "+1", "", "true"} {
		f.Add([]byte(strings.Replace(seeds[4], `"seq":0`, `"seq":`+seq, 1)))
	}
	change := func(s, old, value string) {
		if t := strings.Replace(s, old, value, 1); t != s {
			f.Add([]byte(t))
		}
	}
	for _, id := range []string{"", "run 1", "r\u00fcn", "_-Z", strings.Repeat("r", 128), strings.Repeat("r", 129)} {
		change(seeds[4], `"run_1"`, `"`+id+`"`)
	}
	for _, more := range []string{`1e999999999`, `[{"b":-1e999999999}]`, `{"b":[{}],"c":[]}`, `[1,{"b":0,"b":1}]`} {
		change(seeds[4], `"seq":0`, `"more":`+more+`,"seq":0`)
	}
	for _, s := range seeds {
		for _, value := range []string{`{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`,
			`{"a":-0.5,"b":[[],{}]}`, `{"a"}`, `{"a":1,}`, `[{"a":[1,]}]`, `{"\u0061":1,"a":2}`, `"x"`, `{`} {
			change(s, `{"prompt":"fix it"}`, value)
		}
		for _, value := range []string{"0.0", "0.250", "1.5", "-0.25", "1e-3", "123456789012345.5", "1.0", ".5", "5.",
			"00.5", `"x"`} {
			change(s, `"duration_ms":1`, `"duration_ms":`+value)
		}
		for _, value := range []string{`"81JABCDEFGHJKMNPQRSTVWXYZ0"`, `"01jabcdefghjkmnpqrstvwxyz0"`, `""`,
			`"\u0030\u0031JABCDEFGHJKMNPQRSTVWXYZ0"`, "1", "null"} {
			change(s, `"01JABCDEFGHJKMNPQRSTVWXYZ0"`, value)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for layer, id := range lineSchemas {
			if layer == KernelPath {
				continue // FuzzDecodeKernelEvent
			}
			got, err := NewLineDecoder(layer).Decode(line)
			want := Validate(id, line)
			if (err == nil) != (want == nil) || errors.Is(err, ErrSyntax) != errors.Is(want, ErrSyntax) ||
				errors.Is(err, ErrDuplicateKey) != errors.Is(want, ErrDuplicateKey) {
				t.Fatalf("%s: %q: decoded with %v, the schema says %v", layer, line, err, want)
			}
			if err != nil {
				continue
			}
			var other Record
			var value any
			switch layer {
			case EventsPath:
				other.Event = &Event{}
				value = other.Event
			case PolicyPath:
				other.Policy = &PolicyEvent{}
				value = other.Policy
			case SDKPath:
				other.SDK = &SDKEvent{}
				value = other.SDK
			case TurnsPath:
				other.Turn = &Turn{}
				value = other.Turn
			case AuditPath:
				other.Call = &CallEvent{}
				value = other.Call
			case ModelPath:
				other.Model = &ModelEvent{}
				value = other.Model
			}
			if jsonv2.Unmarshal(line, value) != nil {
				continue // a number that does not fit
			}
			other.Schema, other.RunID, other.Seq = got.Schema, got.RunID, got.Seq
			if diff := cmp.Diff(other, got, orNil[int](), orNil[int64]()); diff != "" {
				t.Fatalf("%s: %q (-library +decoder):\n%s", layer, line, diff)
			}
		}
	})
}

// Lines that have every member between them are decoded with every field: a field that is
// added to a type is read, too.
func TestEveryFieldIsDecoded(t *testing.T) {
	const base = `"base":{"seq":1,"members":["m"],"items":{"messages":[[0,1]]}},`
	hex := strings.Repeat("a", 64)
	head := func(id string) string { return fmt.Sprintf(`{"schema":%q,"run_id":"r","seq":7,`, id) }
	reported := `"tool":"t","source":"gateway","client_id":"c","proposal_id":"p","action_id":"a","tool_call_id":"i",` +
		`"t_start_ns":1,"t_end_ns":2,"record":"turn","prompt":"p","parameters":{},"error":"e","dry_run":true,` +
		`"reported":{"t_start_ns":1,"t_end_ns":1},"cut":[{"path":"/x","bytes":3,"kept":1,"tail":1,"sha256":"sha256:` +
		hex +
		`"}],"blobs":[{"path":"/y","bytes":1,"sha256":"sha256:` + hex + `","json":true}],"index":7,`
	for layer, lines := range map[string][]string{
		EventsPath: {head(EventV0) + `"type":"checkpoint","t_ns":1,"agent_shim":"s","command":["c"],"env_keys":["k"],` +
			`"exit_code":1,"signal":9,"success":true,"window_elapsed_ms":1,"pid":1,"signal_name":"SIGKILL","limit":"pids","count":1,` +
			`"processes":[{"pid":1,"name":"n","container_id":"` + hex + `","left_session":true,"ours":true,` +
			`"serves":[8080]}],` +
			`"containers":[{"id":"` + hex +
			`","engine":"e","name":"n","image":"i"}],"stream":"stdout","bytes":1,"cgroup":"/c",` +
			`"inherited":[{"pid":2,"fd":3,"type":"socket","access":"read","path":"/p","protocol":"tcp","local":"l",` +
			`"peer":"r"}],` +
			`"code":"c","message":"m","check":"c","phase":"final","passed":true,"duration_ms":1,"output_tail":"t",` +
			`"checkpoint":{"run":"sha256:` + hex + `","layers":{"kernel":{"lines":1,"root":"sha256:` + hex + `"}},` +
			`"members":{"stdio/stdout":{"bytes":1,"sha256":"sha256:` + hex + `"}}}}`,
			head(EventV0) + `"type":"x","signal":9}`},
		PolicyPath: {head(PolicyEventV0) + `"source_event_type":"a","source":"b","tool_call_id":"c","tool":"d",` +
			`"decision":"deny","t_ns":1,"rule":"r","operation":"read","target":"/x","repeats":1}`},
		SDKPath: {head(SDKEventV0) +
			`"event_type":"x","source":"s","sdk_name":"n","sdk_version":"1","tool_call_id":"c",` +
			`"tool":"t","failed":true,"argv":["sh","-c","ls"],"t_ns":1,"span_id":"0123456789abcdef",` +
			`"timestamp":"2026"}`},
		TurnsPath: {
			head(TurnV0) + reported + `"output":{},"cli_outcome":{"kind":"exited","code":1},"verifier_verdict":"pass"}`,
			head(TurnV0) + reported +
				`"policy_rejected":{"rule":"r","param":"p"},"rejected_by":"policy","verifier_verdict":"not_run"}`,
		},
		AuditPath: {head(CallEventV2) +
			`"ts":"2026-01-02T03:04:05Z","call_id":"01JABCDEFGHJKMNPQRSTVWXYZ0","tool_id":"x",` +
			`"tool_call_id":"c","caller_id":"a","granted_capabilities":["c"],"duration_ms":2,"duration_us":1500,` +
			`"outcome":{"kind":"execution_failed","code":"c","retryable":true,"message":"m","missing":["m"],"retry_after_ms":1,` +
			`"rule":"r"},"tier":"t","dry_run":true,"schema_version":2,"secrets_resolved":true,"cursor_page":1}`},
		ModelPath: {head(ModelEventV0) + `"t_ns":1,"route":"r","api":"a","method":"POST","path":"/p",` +
			`"request_model":"m","response_model":"m","response_id":"i","status":200,"error_type":"e","refused":"path",` +
			`"stream":true,"retry_of":1,"exec_id":1,"finish_reasons":["f"],"usage":{"input_tokens":1,` +
			`"cache_read_input_tokens":1,"cache_creation_input_tokens":1,"output_tokens":1,"reasoning_output_tokens":1},` +
			`"error_source":"provider","text":"t","odd":[{"member":"m","raw":"1","count":1}],"partial":["usage"],` +
			`"fetches":[{"kind":"media","what":"w","host":"h"}],` +
			`"usage_raw":{},"tool_calls":[{"id":"i","name":"n","namespace":"s","index":1,"doubt":"no_id","arguments":{},` +
			`"arguments_text":"{","provider_executed":true,` +
			`"complete":true}],"tool_results":[{"id":"i","name":"n","is_error":true}],"timings":{"first_byte_ns":1,` +
			`"end_ns":2},"cost":0.5,"request":{"bytes":1,"sha256":"sha256:` + hex + `","body":{},"text":true,` +
			base + `"left_out":true},"response":{"bytes":1,"sha256":"sha256:` + hex +
			`","body":"x","text":true,` + base + `"left_out":true},` +
			`"unknown":1,"unknown_kinds":["k"],"response_headers":{"retry-after":"1"},` +
			`"replayed":{"seq":1,"drift":1,"places":["/a"],"redacted":true}}`},
	} {
		seen := map[string]bool{}
		for _, line := range lines {
			got, err := NewLineDecoder(layer).Decode([]byte(line))
			if err != nil {
				t.Fatalf("%s: %v", layer, err)
			}
			for _, v := range []any{got.Event, got.Policy, got.SDK, got.Turn, got.Call, got.Model} {
				if !reflect.ValueOf(v).IsNil() {
					fieldsOf(reflect.ValueOf(v), layer, seen)
				}
			}
		}
		for field, set := range seen {
			if !set {
				t.Errorf("%s is not decoded, or no line here has it", field)
			}
		}
	}
}

// fieldsOf notes which fields of a value are set, those of values in it included.
func fieldsOf(v reflect.Value, name string, seen map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fieldsOf(v.Elem(), name, seen)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			fieldsOf(v.Index(0), name, seen)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			fieldsOf(v.MapIndex(key), name, seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := name + "." + v.Type().Field(i).Name
			seen[field] = seen[field] || !v.Field(i).IsZero()
			fieldsOf(v.Field(i), field, seen)
		}
	}
}

// orNil makes a null what the library makes of it behind a pointer: nil.
func orNil[T any]() cmp.Option {
	return cmp.Transformer("orNil", func(n *Nullable[T]) *T {
		if n == nil || !n.Valid {
			return nil
		}
		return &n.Value
	})
}

func BenchmarkLine(b *testing.B) {
	for _, line := range lineSeeds() {
		for layer := range lineSchemas {
			d := NewLineDecoder(layer)
			if _, err := d.Decode([]byte(line)); err != nil {
				continue
			}
			b.Run(LayerName(layer), func(b *testing.B) {
				b.SetBytes(int64(len(line)))
				for b.Loop() {
					d.Decode([]byte(line))
				}
			})
		}
	}
}

// TestUnknownMembersAreNotKept: of what a schema says nothing about, Validate keeps nothing, whatever its form.
func TestUnknownMembersAreNotKept(t *testing.T) {
	const text = `{"schema":"assay.runner.correlation_report.v0","run_id":"r","status":"clean",%s"bindings":[{` +
		`"tool_call_id":"c","kernel_event_count":0,"window":{"start":"","end":""}%s}],"ambiguities":[]}`
	var object strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&object, `"a%d":"b",`, i)
	}
	for what, member := range map[string]string{
		"objects": `"x":[{` + object.String() + `"z":{}}]`, "empty objects": `"x":[` + strings.Repeat(`{},`, 60_000) + `0]`,
		"texts": `"x":[` + strings.Repeat(`"one",`, 60_000) + `0]`,
	} {
		for where, doc := range map[string]string{
			"at the top": fmt.Sprintf(text, member+",", ""), "in an item": fmt.Sprintf(text, "", ","+member),
		} {
			if err := Validate(CorrelationReportV0, []byte(doc)); err != nil {
				t.Fatal(err)
			}
			// The decoder itself keeps the names of an object, while it is open, to tell them apart.
			n := testing.AllocsPerRun(1, func() { _ = Validate(CorrelationReportV0, []byte(doc)) })
			if n > 70_000 {
				t.Errorf("%s %s: %v allocations", what, where, n)
			}
		}
	}
	for member, want := range map[string]error{`{"b":1,"b":2}`: ErrDuplicateKey, `{"b":1e999999}`: ErrSyntax} {
		doc := fmt.Sprintf(text, `"x":{"a":[`+member+`]},`, "")
		if err := Validate(CorrelationReportV0, []byte(doc)); !errors.Is(err, want) {
			t.Errorf("%s in an unknown member: %v", member, err)
		}
	}
}
