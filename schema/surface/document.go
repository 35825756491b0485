package surface

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// The lists of capability-surface.json.
const (
	listPaths     = "filesystem_paths"
	listEndpoints = "network_endpoints"
	listExecs     = "process_execs"
	listTools     = "mcp_tools"
	listDecisions = "policy_decisions"
)

// listRoom is how many bytes each list takes in the document at most: together
// less than the 64 MiB that readers accept of one (schema/SPEC.md).
var listRoom = map[string]int64{
	listPaths: 40 << 20, listEndpoints: 6 << 20, listExecs: 6 << 20, listTools: 4 << 20, listDecisions: 4 << 20,
}

// WriteTo streams capability-surface.json in the form of [schema.Document]. What a
// list has no room for, the last by its order, is left out; Reasons tells.
func (b *Builder) WriteTo(w io.Writer) (int64, error) {
	if err := b.decideAll(); err != nil {
		return 0, err
	}
	c := &countWriter{w: bufio.NewWriterSize(w, 64<<10)}
	c.text("{\n  \"schema\": ")
	c.value(schema.CapabilitySurfaceV0)
	c.text(",\n  \"run_id\": ")
	c.value(b.runID)
	b.omitted = make(map[string]uint64)
	for _, l := range []struct {
		key    string
		values iter.Seq2[string, error]
	}{
		{listPaths, b.paths.all()}, {listEndpoints, b.endpoints()}, {listExecs, b.execs.all()},
		{listTools, ascending(b.tools)}, {listDecisions, ascending(b.decisions)},
	} {
		if n := c.list(l.key, l.values, b.room[l.key]); n > 0 {
			b.omitted[l.key] = n
		}
	}
	c.text("\n}\n")
	if c.err == nil {
		c.err = c.w.Flush()
	}
	return c.n, c.err
}

// Reasons says, after WriteTo, what the document does not list.
func (b *Builder) Reasons() []schema.Reason {
	var reasons []schema.Reason
	for _, list := range slices.Sorted(maps.Keys(b.omitted)) {
		reasons = append(reasons, schema.Reason{
			Subject: "surface", Code: "surface_cut",
			Message: fmt.Sprintf("%s is over %d MiB, so the last %d of its sorted entries are left out; "+
				"the layers have them", list, b.room[list]>>20, b.omitted[list]),
		})
	}
	return reasons
}

// EndpointsOmitted reports, after WriteTo, whether there was no room for some endpoints.
func (b *Builder) EndpointsOmitted() bool { return b.omitted[listEndpoints] > 0 }

func ascending(m map[string]struct{}) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, v := range slices.Sorted(maps.Keys(m)) {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// countWriter writes JSON by hand and keeps the first error.
type countWriter struct {
	w   *bufio.Writer
	buf bytes.Buffer
	n   int64
	err error
}

func (c *countWriter) text(s string) {
	if c.err == nil {
		var n int
		n, c.err = c.w.WriteString(s)
		c.n += int64(n)
	}
}

func (c *countWriter) write(b []byte) {
	if c.err == nil {
		var n int
		n, c.err = c.w.Write(b)
		c.n += int64(n)
	}
}

func (c *countWriter) value(s string) { c.write(c.encode(s)) }

// encode is a string in JSON, until the next call.
func (c *countWriter) encode(s string) []byte {
	c.buf.Reset()
	if asItIs(s) {
		c.buf.WriteByte('"')
		c.buf.WriteString(s)
		c.buf.WriteByte('"')
		return c.buf.Bytes()
	}
	enc := json.NewEncoder(&c.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil && c.err == nil {
		c.err = err
	}
	return bytes.TrimSuffix(c.buf.Bytes(), []byte("\n"))
}

// asItIs tells whether JSON has a string as it is.
func asItIs(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// list writes values as long as there is room for them, and returns how many it
// left out.
func (c *countWriter) list(key string, values iter.Seq2[string, error], room int64) (omitted uint64) {
	c.text(",\n  \"" + key + "\": [")
	sep, end := "\n    ", c.n+room
	for v, err := range values {
		if err != nil && c.err == nil {
			c.err = err
		}
		if c.err != nil {
			return omitted
		}
		text := c.encode(v)
		if omitted > 0 || c.n+int64(len(sep)+len(text)) > end {
			omitted++
			continue
		}
		c.text(sep)
		c.write(text)
		sep = ",\n    "
	}
	if sep != "\n    " {
		c.text("\n  ")
	}
	c.text("]")
	return omitted
}
