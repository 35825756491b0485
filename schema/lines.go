package schema

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
)

// LineInfo is what every layer line has. It is empty when the line was refused.
type LineInfo struct {
	Schema string
	RunID  string
	Seq    uint64
	// Type is the "type" of a lifecycle event, else empty. It points into the line.
	Type []byte
}

// LineChecker checks the lines of one layer. It is made for one goroutine. Its
// answers are those of [DecodeKernelEvent] for the kernel layer, and of [Validate]
// for any other.
//
// Validate takes 0.1 ms for a line. The checker is fast because lines repeat: two lines that differ only in values that
// no schema keyword looks into (any string where a string is asked for) are
// accepted or refused alike. So a line is reduced to its shape, and only a
// shape that is new goes through the schema.
type LineChecker struct {
	kernel   *KernelEvent // nil for the other layers
	profiles []*profile
	cur      *profile // of the line before
	run      string   // run_id of the line before: one string for all lines
	sig      []byte
}

// NewLineChecker makes a checker for a layer whose lines are of one of the
// given schemas.
func NewLineChecker(ids ...string) (*LineChecker, error) {
	c := &LineChecker{}
	if slices.Contains(ids, KernelEventV1) {
		c.kernel = &KernelEvent{}
		return c, nil
	}
	for _, id := range ids {
		p, err := newProfile(id)
		if err != nil {
			return nil, err
		}
		c.profiles = append(c.profiles, p)
	}
	c.cur = c.profiles[0]
	return c, nil
}

// Check checks one line without its newline.
func (c *LineChecker) Check(line []byte) (LineInfo, error) {
	if e := c.kernel; e != nil {
		if err := DecodeKernelEvent(line, e); err != nil {
			return LineInfo{}, err
		}
		info := LineInfo{Schema: KernelEventV1, RunID: e.RunID, Seq: e.Seq}
		if e.V0 {
			info.Schema = KernelEventV0
		}
		return info, nil
	}
	if info, ok := c.fast(line); ok {
		return info, nil
	}
	return c.full(line)
}

// fast accepts a line whose shape the schema accepted before.
func (c *LineChecker) fast(line []byte) (LineInfo, bool) {
	info, ok := c.scan(line)
	return info, ok && c.cur.accepted(c.sig)
}

func (c *LineChecker) full(line []byte) (LineInfo, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	json.Unmarshal(line, &head) // its errors are validate's to report
	i := slices.IndexFunc(c.profiles, func(p *profile) bool { return p.id == head.Schema })
	if i < 0 {
		if err := checkSyntax(line); err != nil {
			return LineInfo{}, err
		}
		return LineInfo{}, fmt.Errorf("%w: schema %.100q is not one of this layer", ErrSchema, head.Schema)
	}
	c.cur = c.profiles[i]
	m, err := check(c.cur.schema, line)
	if err != nil {
		return LineInfo{}, err
	}
	var seq uint64
	switch n := m["seq"].(type) {
	case int64:
		seq = uint64(n) // the schemas refuse negative ones
	case uint64:
		seq = n
	default:
		return LineInfo{}, fmt.Errorf("%w: seq %v is not a plain 64-bit number", ErrSchema, n)
	}
	runID, _ := m["run_id"].(string)
	kind, _ := m["type"].(string)
	if _, ok := c.scan(line); ok {
		c.cur.remember(c.sig)
	}
	return LineInfo{Schema: c.cur.id, RunID: runID, Seq: seq, Type: []byte(kind)}, nil
}
