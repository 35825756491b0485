package archive

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// checkpoints are the checkpoints in a lifecycle layer. Verify and recovery compare the layers and streams with them.
type checkpoints struct {
	layers  map[string][]schema.LayerTree   // by path
	members map[string][]schema.MemberBytes // by path
	checked map[string]bool                 // outputs of checks that were started
	runs    []string                        // distinct digests of run.json; more than one if it was changed
}

// add reads a line of the lifecycle layer.
func (c *checkpoints) add(e *schema.Event) {
	if e.Type == schema.CheckStarted {
		if c.checked == nil {
			c.checked = map[string]bool{}
		}
		c.checked[schema.CheckOutputPath(e.Check)] = true
	}
	if e.Type != schema.CheckpointMade || e.Checkpoint == nil {
		return
	}
	if c.layers == nil {
		c.layers, c.members = map[string][]schema.LayerTree{}, map[string][]schema.MemberBytes{}
	}
	if d := e.Checkpoint.Run; d != "" && !slices.Contains(c.runs, d) {
		c.runs = append(c.runs, d)
	}
	for _, p := range schema.AllLayers {
		if t, ok := e.Checkpoint.Layers[schema.LayerName(p)]; ok {
			c.layers[p] = append(c.layers[p], t)
		}
	}
	for p, m := range e.Checkpoint.Members {
		if isStream(p) {
			c.members[p] = append(c.members[p], m)
		}
	}
}

// merge adds the layers and members of others.
func (c *checkpoints) merge(more checkpoints) {
	if c.layers == nil {
		c.layers, c.members = map[string][]schema.LayerTree{}, map[string][]schema.MemberBytes{}
	}
	for p, due := range more.layers {
		c.layers[p] = append(c.layers[p], due...)
	}
	for p, due := range more.members {
		c.members[p] = append(c.members[p], due...)
	}
}

// treeCheck is a tree that is compared with checkpoints while it grows.
type treeCheck struct {
	tree
	due    []schema.LayerTree // checkpoints still to come, sorted
	whole  uint64             // lines up to the last checkpoint that matched
	failed *schema.LayerTree  // the first checkpoint that did not match
}

func newTreeCheck(due []schema.LayerTree) *treeCheck {
	t := &treeCheck{due: slices.Clone(due)}
	slices.SortStableFunc(t.due, func(a, b schema.LayerTree) int { return cmp.Compare(a.Lines, b.Lines) })
	t.compare()
	return t
}

func (t *treeCheck) add(leaf tlog.Hash) {
	t.tree.add(leaf)
	t.compare()
}

func (t *treeCheck) compare() {
	for len(t.due) > 0 && t.due[0].Lines == t.lines {
		if digest(t.root()) == t.due[0].Root {
			t.whole = t.lines
		} else if t.failed == nil {
			t.failed = &t.due[0]
		}
		t.due = t.due[1:]
	}
}

// fault says at the end how the layer contradicts the checkpoints; empty if it does not.
func (t *treeCheck) fault() string {
	switch {
	case t.failed != nil:
		return fmt.Sprintf("was changed between line %d and line %d after they were written", t.whole+1, t.failed.Lines)
	case len(t.due) > 0:
		return fmt.Sprintf("has %d lines, and %d had been written", t.lines, t.due[len(t.due)-1].Lines)
	}
	return ""
}

// bytesCheck compares a stream with checkpoints, as treeCheck does a layer. Write never fails.
type bytesCheck struct {
	h      hash.Hash
	n      int64
	due    []schema.MemberBytes
	whole  int64
	failed *schema.MemberBytes
}

func newBytesCheck(due []schema.MemberBytes) *bytesCheck {
	c := &bytesCheck{h: sha256.New(), due: slices.Clone(due)}
	slices.SortStableFunc(c.due, func(a, b schema.MemberBytes) int { return cmp.Compare(a.Bytes, b.Bytes) })
	c.compare()
	return c
}

func (c *bytesCheck) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := b
		if len(c.due) > 0 {
			part = b[:min(int64(len(b)), max(c.due[0].Bytes-c.n, 1))]
		}
		c.h.Write(part)
		c.n += int64(len(part))
		b = b[len(part):]
		c.compare()
	}
	return n, nil
}

func (c *bytesCheck) compare() {
	for len(c.due) > 0 && c.due[0].Bytes <= c.n {
		if c.due[0].Bytes == c.n && c.state().SHA256 == c.due[0].SHA256 {
			c.whole = c.n
		} else if c.failed == nil {
			c.failed = &c.due[0]
		}
		c.due = c.due[1:]
	}
}

func (c *bytesCheck) state() schema.MemberBytes {
	return schema.MemberBytes{Bytes: c.n, SHA256: digest([sha256.Size]byte(c.h.Sum(nil)))}
}

func (c *bytesCheck) fault() string {
	switch {
	case c.failed != nil:
		return fmt.Sprintf("was changed between byte %d and byte %d after they were written", c.whole, c.failed.Bytes)
	case len(c.due) > 0:
		return fmt.Sprintf("has %d bytes, and %d had been written", c.n, c.due[len(c.due)-1].Bytes)
	}
	return ""
}
