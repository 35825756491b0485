package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// memWire is a connection that has one thing to say.
type memWire struct {
	in  [][]byte
	out bytes.Buffer
}

func (w *memWire) read() ([]byte, error) {
	if len(w.in) == 0 {
		return nil, io.EOF
	}
	b := w.in[0]
	w.in = w.in[1:]
	return b, nil
}

func (w *memWire) write(b []byte) error  { w.out.Write(b); return nil }
func (w *memWire) socket() *net.UnixConn { return nil }
func (w *memWire) finish(string)         {}
func (w *memWire) close()                {}

// FuzzMessage holds that whatever a client says, it gets valid answers, the
// layers stay valid, and the numbers agree.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"proposal.submit","params":{"proposal":{"id":"p","source":"s","actions":[{"id":"a","type":"tool_call","tool":"t","parameters":{"path":"/x"}}]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"proposal.submit","params":{"dry_run":true,"proposal":{"id":"p","source":"s","capabilities":[],"actions":[{"id":"a","type":"tool_call","tool":"t","parameters":null,"tool_call_id":"x"}]}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"tools.register","params":[{"name":"u","parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"anyOf":[{"type":"string"},{"minimum":3}]}}},"capabilities":["c"],"max_concurrent":1,"rate_limit_per_min":5,"deadline_ms":5,"tier":"x"}]}`,
		`{"jsonrpc":"2.0","id":null,"method":"policy.register","params":{"name":"n","rule":"deny_tool_param_matching","target":"t","key":"/a/0","pattern":"a+","value":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"runs.record_turns","params":{"turns":[{"tool":"x","index":1,"output":[1.5e3,"é"],"verifier_verdict":"pass"}]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"runs.get_trace","params":{"from_index":0,"limit":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"runs.subscribe","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"runs.complete","params":{"outcome":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"metrics.snapshot"},7]`, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		rec := newFileRecorder(t.TempDir())
		defer rec.close()
		began := time.Now()
		g, err := New(Config{
			Run:    &Recording{RunID: "run_1", Recorder: rec, TurnsFile: rec.dir + "/" + schema.TurnsPath},
			Now:    func() time.Duration { return time.Since(began) },
			Limits: Limits{CallTimeout: time.Second, Grace: time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		w := &memWire{in: [][]byte{
			[]byte(`{"jsonrpc":"2.0","id":0,"method":"runs.start","params":{"agent_id":"a","intent":""}}`),
			[]byte(`{"jsonrpc":"2.0","id":0,"method":"tools.register","params":[{"name":"t","parameters":{"type":"object"}}]}`),
			msg,
		}}
		g.enter()
		g.serve(w)
		g.leave()
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, line := range bytes.Split(bytes.TrimSuffix(w.out.Bytes(), []byte("\n")), []byte("\n")) {
			if !jsontext.Value(line).IsValid() || !json.Valid(line) {
				t.Fatalf("an answer that is not JSON: %q", line)
			}
		}
		rec.lines(t, schema.TurnsPath, schema.TurnV0)
		rec.lines(t, schema.PolicyPath, schema.PolicyEventV0)
		if n := len(rec.lines(t, schema.AuditPath, schema.CallEventV2)); uint64(n) != g.Metrics().Calls {
			t.Fatalf("%d lines, %d calls", n, g.Metrics().Calls)
		}
	})
}

// FuzzParamSchema holds that no schema that is taken makes a check run away or
// panic.
func FuzzParamSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`), []byte(`{"a":"x"}`))
	f.Add([]byte(`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"r":{"$ref":"#/$defs/t"}}}}}`), []byte(`{"l":{"l":{"r":{}}}}`))
	f.Add([]byte(`{"allOf":[{"if":{"type":"string"},"then":{"minLength":2},"else":false}],"unevaluatedProperties":false}`), []byte(`"xx"`))
	f.Add([]byte(`{"prefixItems":[true,{"const":1.0}],"items":{"enum":[null]},"uniqueItems":true,"contains":{"multipleOf":0.1}}`), []byte(`[1,1,null]`))
	f.Add([]byte(`{"patternProperties":{"^a":{"not":{}}},"propertyNames":{"maxLength":3},"dependentSchemas":{"b":{"minProperties":2}}}`), []byte(`{"b":1}`))
	f.Fuzz(func(t *testing.T, raw, params []byte) {
		if scan(raw, 64) != nil || scan(params, 64) != nil || !jsontext.Value(raw).IsValid() || !jsontext.Value(params).IsValid() {
			return
		}
		began := time.Now()
		p, err := compileParams(bytes.TrimSpace(raw))
		if err == nil && p != nil {
			p.check(params)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
