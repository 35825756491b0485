package archive

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// chunkBytes is how much of a layer one worker takes at a time. A chunk is
// whole lines; a longer line makes its buffer grow, up to MaxLine.
const chunkBytes = 256 << 10

// lineVerifier checks layers on all cores: one goroutine cuts them into
// chunks, workers check the chunks, and what they find is put in order.
type lineVerifier struct {
	report *Report
	runID  string
	work   chan chunk
	free   chan []byte
	done   sync.WaitGroup
	busy   sync.WaitGroup // chunks under way

	mu    sync.Mutex
	found []*Problem // of the current layer
	more  uint64
	kinds map[string]uint64 // lines of the current layer by schema
	ended uint64            // line of the first run_finished, from 1; 0: there is none

	// The lifecycle's first and last line, for the checks between artifacts.
	firstEvent, lastEvent []byte
}

// chunk is whole lines of a layer, the first of which has number line (from 0).
type chunk struct {
	layer string
	line  uint64
	data  []byte
}

func newLineVerifier(report *Report) *lineVerifier {
	n := runtime.GOMAXPROCS(0)
	v := &lineVerifier{report: report, work: make(chan chunk, n), free: make(chan []byte, 2*n+1)}
	for range cap(v.free) {
		v.free <- nil
	}
	for range n {
		v.done.Go(v.worker)
	}
	return v
}

// close ends the workers.
func (v *lineVerifier) close() {
	close(v.work)
	v.done.Wait()
}

// layer checks one layer and returns the number of its lines.
func (v *lineVerifier) layer(r io.Reader, path string) (lines uint64, err error) {
	v.kinds = map[string]uint64{}
	err = v.chunks(r, path, &lines)
	v.busy.Wait()
	if v.ended > 0 && v.ended < lines && err == nil {
		v.problem(problem(CodeLifecycle, path, "%s is not the last line", schema.RunFinished), v.ended-1)
	}
	v.ended = 0
	slices.SortFunc(v.found, func(a, b *Problem) int { return cmp.Compare(a.Line, b.Line) })
	gap := false
	for _, p := range v.found {
		// One gap shifts all lines behind it: the first one says enough.
		if p.Code != CodeSeq || !gap {
			v.report.add(p)
		}
		gap = gap || p.Code == CodeSeq
	}
	v.report.More += v.more
	v.found, v.more = nil, 0
	if len(v.kinds) > 1 {
		v.report.add(problem(CodeSchema, path, "the layer mixes lines of %d schemas", len(v.kinds)))
	}
	return lines, err
}

// chunks reads the layer and hands out chunks of whole lines.
func (v *lineVerifier) chunks(r io.Reader, path string, lines *uint64) error {
	var rest []byte // the start of a line whose end is not yet read
	for {
		buf := append((<-v.free)[:0], rest...)
		if cap(buf) < chunkBytes {
			buf = append(make([]byte, 0, chunkBytes), buf...)
		}
		buf, err := fill(r, buf)
		if err != nil && err != io.EOF {
			v.free <- buf
			return err
		}
		end := bytes.LastIndexByte(buf, '\n') + 1
		rest = append(rest[:0], buf[end:]...)
		if len(rest) > 0 && err == io.EOF {
			v.problem(problem(CodeUnterminated, path, "the last line has no newline"), *lines+uint64(bytes.Count(buf, []byte{'\n'})))
		}
		if end == 0 {
			v.free <- buf
			if err == io.EOF {
				return nil
			}
			if len(rest) >= MaxLine {
				v.problem(problem(CodeLimit, path, "a line of more than %d bytes; the rest of the layer was counted, not checked", MaxLine), *lines)
				return countLines(r, lines)
			}
			continue
		}
		data := buf[:end]
		n := uint64(bytes.Count(data, []byte{'\n'}))
		if path == schema.EventsPath {
			v.keepEvents(data, *lines == 0)
		}
		v.busy.Add(1)
		v.work <- chunk{layer: path, line: *lines, data: data}
		*lines += n
		if err == io.EOF {
			return nil
		}
	}
}

// countLines counts the rest of a layer.
func countLines(r io.Reader, lines *uint64) error {
	buf := make([]byte, chunkBytes)
	for {
		n, err := r.Read(buf)
		*lines += uint64(bytes.Count(buf[:n], []byte{'\n'}))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fill reads until buf holds a chunk, or longer while it holds no newline.
func fill(r io.Reader, buf []byte) ([]byte, error) {
	want := max(chunkBytes, min(2*len(buf), MaxLine))
	buf = slices.Grow(buf, want-len(buf))
	for len(buf) < want {
		n, err := r.Read(buf[len(buf):want])
		buf = buf[:len(buf)+n]
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

func (v *lineVerifier) keepEvents(data []byte, first bool) {
	if first {
		v.firstEvent = bytes.Clone(data[:bytes.IndexByte(data, '\n')])
	}
	data = data[:len(data)-1]
	v.lastEvent = bytes.Clone(data[bytes.LastIndexByte(data, '\n')+1:])
}

func (v *lineVerifier) problem(p *Problem, line uint64) {
	p.Line = line + 1
	v.mu.Lock()
	defer v.mu.Unlock()
	// Chunks end out of order: keep the first ones by line, not by time.
	v.found = append(v.found, p)
	if len(v.found) > 4*maxProblems {
		slices.SortFunc(v.found, func(a, b *Problem) int { return cmp.Compare(a.Line, b.Line) })
		v.more += uint64(len(v.found) - maxProblems)
		v.found = slices.Clip(v.found[:maxProblems])
	}
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
	var ended uint64
	var shift uint64 // how far seq is from where it should be
	for n, data := c.line, c.data; len(data) > 0; n++ {
		end := bytes.IndexByte(data, '\n')
		line := data[:end]
		data = data[end+1:]
		if len(line) >= MaxLine {
			v.problem(problem(CodeLimit, c.layer, "a line of %d bytes, at most %d are allowed", len(line), MaxLine-1), n)
			continue
		}
		info, err := k.Check(line)
		if err != nil {
			v.problem(problem(schemaCode(err), c.layer, "%v", err), n)
			continue
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
	if ended > 0 && (v.ended == 0 || ended < v.ended) {
		v.ended = ended
	}
}

// isIndexed tells that a turn's index is its seq.
func isIndexed(turn []byte, seq uint64) bool {
	var t struct {
		Index uint64 `json:"index"`
	}
	return json.Unmarshal(turn, &t) == nil && t.Index == seq
}
