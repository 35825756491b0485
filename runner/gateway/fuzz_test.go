package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/recording/recordingtest"
	"github.com/assay-run/assay-run/schema"
)

// memConn is a connection that sends given input.
type memConn struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (c *memConn) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *memConn) Write(p []byte) (int, error)      { return c.out.Write(p) }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }
func (c *memConn) Close() error                     { return nil }

// FuzzMessage checks that a client gets valid answers whatever it sends, that the layers stay valid, and that the
// numbers agree.
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
		`[{"jsonrpc":"2.0","id":1,"method":"metrics.snapshot"},7]`,
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		rec := recordingtest.New(t.TempDir())
		defer rec.Close()
		began := time.Now()
		g, err := New(Config{
			Run:    &Recording{RunID: "run_1", Recorder: rec, TurnsFile: rec.Dir + "/" + schema.TurnsPath},
			Now:    func() time.Duration { return time.Since(began) },
			Limits: Limits{CallTimeout: time.Second, Grace: time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		conn := &memConn{in: io.MultiReader(
			strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"runs.start","params":{"agent_id":"a","intent":""}}`+
				"\n"),
			strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"tools.register","params":[{"name":"t","parameters":{"type":"object"}}]}`+"\n"),
			bytes.NewReader(append(bytes.ReplaceAll(msg, []byte("\n"), []byte(" ")), '\n')),
		)}
		g.server.ServeConn(conn)
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, line := range bytes.Split(bytes.TrimSuffix(conn.out.Bytes(), []byte("\n")), []byte("\n")) {
			if !jsontext.Value(line).IsValid() || !json.Valid(line) {
				t.Fatalf("an answer that is not JSON: %q", line)
			}
		}
		rec.Lines(t, schema.TurnsPath)
		rec.Lines(t, schema.PolicyPath)
		if n := len(rec.Lines(t, schema.AuditPath)); uint64(n) != g.Metrics().Calls {
			t.Fatalf("%d lines, %d calls", n, g.Metrics().Calls)
		}
	})
}
