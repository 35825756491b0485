package layer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

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

// surfaceRoom is how many bytes each list takes in the document at most: together
// less than the 64 MiB that readers accept of one (schema/SPEC.md).
var surfaceRoom = map[string]int64{
	listPaths: 40 << 20, listEndpoints: 6 << 20, listExecs: 6 << 20, listTools: 4 << 20, listDecisions: 4 << 20,
}

// WriteTo streams capability-surface.json in the form of [schema.Document]. What a
// list has no room for, the last by its order, is left out; Reasons tells.
func (s *Surface) WriteTo(w io.Writer) (int64, error) {
	c := &countWriter{w: bufio.NewWriterSize(w, 64<<10)}
	c.text("{\n  \"schema\": ")
	c.value(schema.CapabilitySurfaceV0)
	c.text(",\n  \"run_id\": ")
	c.value(s.runID)
	s.cut = make(map[string]uint64)
	for _, l := range []struct {
		key    string
		values iter.Seq2[string, error]
	}{
		{listPaths, s.paths.all()}, {listEndpoints, s.endpoints()}, {listExecs, s.execs.all()},
		{listTools, ascending(s.tools)}, {listDecisions, ascending(s.decisions)},
	} {
		if n := c.list(l.key, l.values, s.room[l.key]); n > 0 {
			s.cut[l.key] = n
		}
	}
	c.text("\n}\n")
	if c.err == nil {
		c.err = c.w.Flush()
	}
	return c.n, c.err
}

// CodeSurfaceCut is the reason of a surface that WriteTo had no room for.
const CodeSurfaceCut = "surface_cut"

// Reasons says, after WriteTo, what the document does not list.
func (s *Surface) Reasons() []schema.Reason {
	var reasons []schema.Reason
	for _, list := range slices.Sorted(maps.Keys(s.cut)) {
		reasons = append(reasons, schema.Reason{
			Subject: "surface", Code: CodeSurfaceCut,
			Message: fmt.Sprintf("%s holds %d MiB at the most: the last %d by their order are left out; the layers have them", list, s.room[list]>>20, s.cut[list]),
		})
	}
	return reasons
}

// EndpointsCut tells, after WriteTo, that not every endpoint is listed.
func (s *Surface) EndpointsCut() bool { return s.cut[listEndpoints] > 0 }

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

func (c *countWriter) value(s string) { c.text(c.encode(s)) }

func (c *countWriter) encode(s string) string {
	c.buf.Reset()
	enc := json.NewEncoder(&c.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil && c.err == nil {
		c.err = err
	}
	return strings.TrimSuffix(c.buf.String(), "\n")
}

// list writes values as long as there is room for them, and returns how many it
// left out.
func (c *countWriter) list(key string, values iter.Seq2[string, error], room int64) (cut uint64) {
	c.text(",\n  \"" + key + "\": [")
	sep, end := "\n    ", c.n+room
	for v, err := range values {
		if err != nil && c.err == nil {
			c.err = err
		}
		if c.err != nil {
			return cut
		}
		text := c.encode(v)
		if cut > 0 || c.n+int64(len(sep)+len(text)) > end {
			cut++
			continue
		}
		c.text(sep)
		c.text(text)
		sep = ",\n    "
	}
	if sep != "\n    " {
		c.text("\n  ")
	}
	c.text("]")
	return cut
}
