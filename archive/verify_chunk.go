package archive

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// chunk is whole lines of a layer, the first of which has number line (from 0).
type chunk struct {
	layer string
	index uint64 // in the layer
	line  uint64
	data  []byte
}

// worker checks chunks. Its checkers live as long as it does.
func (v *lineVerifier) worker() {
	checkers := map[string]*schema.LineChecker{}
	for c := range v.work {
		k := checkers[c.layer]
		if k == nil {
			var err error
			if k, err = schema.NewLineChecker(lineSchemas(c.layer)...); err != nil {
				panic(fmt.Sprintf("embedded schemas: %v", err))
			}
			checkers[c.layer] = k
		}
		v.chunk(c, k)
		v.free <- c.data
		v.busy.Done()
	}
}

func (v *lineVerifier) chunk(c chunk, k *schema.LineChecker) {
	kinds := map[string]uint64{}
	var leaves []tlog.Hash
	var points checkpoints
	var ended uint64
	var shift uint64 // how far seq is from where it should be
	for n, data := c.line, c.data; len(data) > 0 && n <= v.stop.Load(); n++ {
		end := bytes.IndexByte(data, '\n')
		line := data[:end]
		data = data[end+1:]
		leaves = append(leaves, tlog.RecordHash(line))
		if len(line) >= MaxLine {
			v.problem(problem(CodeLimit, c.layer, "a line of %d bytes, at most %d are allowed", len(line), MaxLine-1), n)
			continue
		}
		info, err := k.Check(line)
		if err != nil {
			v.problem(problem(schemaCode(err), c.layer, "%v", err), n)
			continue
		}
		if c.layer == schema.EventsPath {
			points.line(line)
		}
		kinds[info.Schema]++
		if info.Seq-n != shift {
			shift = info.Seq - n
			v.problem(problem(CodeSeq, c.layer, "seq is %d, want %d", info.Seq, n), n)
		}
		if c.layer == schema.TurnsPath && !isIndexed(line, info.Seq) {
			v.problem(problem(CodeSeq, c.layer, "index is not seq, %d", info.Seq), n)
		}
		if info.RunID != v.runID {
			v.problem(problem(CodeRunID, c.layer, "run_id is %.128q, the manifest says %q", info.RunID, v.runID), n)
		}
		if c.layer == schema.EventsPath && (string(info.Type) == schema.RunStarted) != (n == 0) {
			v.problem(problem(CodeLifecycle, c.layer, "type is %.64q: the first line, and no other, is %s", info.Type, schema.RunStarted), n)
		}
		if c.layer == schema.EventsPath && ended == 0 && string(info.Type) == schema.RunFinished {
			ended = n + 1
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, n := range kinds {
		v.kinds[id] += n
	}
	v.grow(c, leaves)
	v.points.add(points)
	if ended > 0 && (v.ended == 0 || ended < v.ended) {
		v.ended = ended
	}
}

// grow adds the leaves of a chunk to the layer's tree once all before it are there.
// v.mu is held.
func (v *lineVerifier) grow(c chunk, leaves []tlog.Hash) {
	v.leaves[c.index] = leaves
	for {
		leaves, ok := v.leaves[v.next]
		if !ok {
			return
		}
		delete(v.leaves, v.next)
		v.next++
		if c.layer == schema.EventsPath {
			v.events = append(v.events, leaves...)
			continue
		}
		for _, leaf := range leaves {
			v.tree.add(leaf)
		}
	}
}

// isIndexed tells that a turn's index is its seq.
func isIndexed(turn []byte, seq uint64) bool {
	var t struct {
		Index uint64 `json:"index"`
	}
	return json.Unmarshal(turn, &t) == nil && t.Index == seq
}
