package archive

import (
	"bytes"
	"cmp"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// chunkBytes is the size of the part of a layer that one worker checks at a time. A chunk has whole lines. For a longer
// line its buffer grows, up to MaxLine.
const chunkBytes = 256 << 10

// lineVerifier checks layers on all cores: one goroutine divides them into chunks, workers check the chunks, and the
// problems are put in order.
type lineVerifier struct {
	report *Report
	runID  string
	most   int           // limit of the problems in a layer
	stop   atomic.Uint64 // lines of the current layer after this one need not be checked
	each   func(*Item)   // of the Tap; may be nil
	work   chan chunk
	free   chan *buffer
	done   sync.WaitGroup
	busy   sync.WaitGroup // chunks that are being checked

	mu     sync.Mutex
	found  []*Problem        // of the current layer, the first ones by line
	kinds  map[string]uint64 // lines of the current layer by schema
	events []tlog.Hash       // the lifecycle's leaves
	ended  uint64            // number of the first run_finished line, from 1; 0 if there is none

	next      uint64           // the chunk whose leaves and items come next
	checked   map[uint64]chunk // later chunks that were checked already
	tree      *treeCheck
	unread    bool   // the rest of the layer was counted, but not checked
	fault     string // how the layer contradicts the checkpoints; empty if it does not
	points    checkpoints
	integrity map[string]schema.LayerTree // of each layer, by name

	// The lifecycle's first and last line, for documentsAgree.
	firstEvent, lastEvent []byte
}

func newLineVerifier(report *Report, most int) *lineVerifier {
	n := runtime.GOMAXPROCS(0)
	v := &lineVerifier{integrity: map[string]schema.LayerTree{}, report: report, most: most, work: make(chan chunk, n),
		free: make(chan *buffer, 2*n+1)}
	for range cap(v.free) {
		v.free <- &buffer{}
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

// layer checks one layer of this size in bytes, and returns the number of its lines.
func (v *lineVerifier) layer(r io.Reader, path string, size int64) (lines uint64, err error) {
	v.kinds = map[string]uint64{}
	v.stop.Store(math.MaxUint64)
	v.unread, v.fault = false, ""
	v.next, v.checked, v.tree = 0, map[uint64]chunk{}, newTreeCheck(v.points.layers[path])
	err = v.chunks(r, path, int(min(size, chunkBytes)), &lines)
	v.busy.Wait()
	if v.unread = v.unread || v.stop.Load() != math.MaxUint64; v.unread {
		v.report.Unfinished = append(v.report.Unfinished, path)
	}
	if v.unread && path == schema.EventsPath {
		v.ended = 0 // its end was not read
	}
	if v.ended > 0 && v.ended < lines && err == nil {
		v.problem(problem(CodeLifecycle, path, "%s is not the last line", schema.RunFinished), v.ended-1)
	}
	v.ended = 0
	if path == schema.EventsPath { // it contains the checkpoints for itself, which are known only now
		v.tree = newTreeCheck(v.points.layers[path])
		for _, leaf := range v.events {
			v.tree.add(leaf)
		}
		v.events = nil
	}
	if !v.unread && err == nil {
		v.fault = v.tree.fault()
	}
	if !v.unread {
		v.integrity[schema.LayerName(path)] = v.tree.state()
	}
	gap := false
	for _, p := range v.found {
		// One gap shifts the numbers of all lines after it, so only the first gap is reported.
		if p.Code != CodeSeq || !gap {
			v.report.add(p)
		}
		gap = gap || p.Code == CodeSeq
	}
	v.found = nil
	if len(v.kinds) > 1 {
		v.report.add(problem(CodeSchema, path, "the layer mixes lines of %d schemas", len(v.kinds)))
	}
	return lines, err
}

// chunks reads the layer and sends chunks of whole lines, of about size bytes, to the workers.
func (v *lineVerifier) chunks(r io.Reader, path string, size int, lines *uint64) error {
	var rest []byte // an unfinished line
	for index := uint64(0); ; {
		if *lines > v.stop.Load() {
			return countLines(r, lines)
		}
		b := <-v.free
		buf := append(b.data[:0], rest...)
		buf, err := fill(r, buf, size+1) // the end is seen behind the last byte
		b.data = buf
		if err != nil && err != io.EOF {
			v.free <- b
			return err
		}
		end := bytes.LastIndexByte(buf, '\n') + 1
		rest = append(rest[:0], buf[end:]...)
		if len(rest) > 0 && err == io.EOF {
			v.problem(problem(CodeUnterminated, path, "the last line has no newline"),
				*lines+uint64(bytes.Count(buf, []byte{'\n'})))
		}
		if end == 0 {
			v.free <- b
			if err == io.EOF {
				return nil
			}
			if len(rest) >= MaxLine {
				v.problem(problem(CodeLimit, path,
					"a line of more than %d bytes; the rest of the layer was counted, not checked", MaxLine), *lines)
				v.unread = true
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
		b.data = data
		v.work <- chunk{layer: path, index: index, line: *lines, buffer: b}
		index++
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

// fill reads until buf has size bytes, or twice what it has if it has more already.
func fill(r io.Reader, buf []byte, size int) ([]byte, error) {
	want := max(size, min(2*len(buf), MaxLine))
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

// problem keeps the problems of the first lines, since chunks are not checked in order. Once there are most of them, no
// later line is checked.
func (v *lineVerifier) problem(p *Problem, line uint64) {
	p.Line = line + 1
	v.mu.Lock()
	defer v.mu.Unlock()
	at, _ := slices.BinarySearchFunc(v.found, p.Line+1, func(q *Problem, line uint64) int {
		return cmp.Compare(q.Line, line)
	})
	v.found = slices.Insert(v.found, at, p)
	if len(v.found) >= v.most {
		v.found = v.found[:v.most]
		v.stop.Store(v.found[v.most-1].Line - 1)
	}
}

// chunk holds whole lines of a layer.
type chunk struct {
	layer string
	index uint64 // in the layer
	line  uint64 // number of the first line, from 0
	*buffer
	leaves []tlog.Hash
}

// buffer is the memory of a chunk. It is reused for later chunks.
type buffer struct {
	data   []byte
	items  []Item // the valid lines, if each wants them
	kernel []schema.KernelEvent
}

// worker checks chunks.
func (v *lineVerifier) worker() {
	decoders := map[string]*schema.LineDecoder{}
	for c := range v.work {
		d := decoders[c.layer]
		if d == nil {
			d = schema.NewLineDecoder(c.layer)
			decoders[c.layer] = d
		}
		v.chunk(c, d)
		v.busy.Done()
	}
}

func (v *lineVerifier) chunk(c chunk, d *schema.LineDecoder) {
	kinds := map[string]uint64{}
	followed := v.each != nil && (c.layer == schema.EventsPath || c.layer == schema.KernelPath)
	if c.items = c.items[:0]; followed && c.layer == schema.KernelPath {
		c.kernel = slices.Grow(c.kernel[:0], bytes.Count(c.data, []byte{'\n'})) // the items point into it
	}
	var points checkpoints
	var ended uint64
	var shift uint64 // difference between seq and the line's number
	for n, data := c.line, c.data; len(data) > 0 && n <= v.stop.Load(); n++ {
		end := bytes.IndexByte(data, '\n')
		line := data[:end]
		data = data[end+1:]
		c.leaves = append(c.leaves, tlog.RecordHash(line))
		if len(line) >= MaxLine {
			v.problem(problem(CodeLimit, c.layer, "a line of %d bytes, at most %d are allowed", len(line), MaxLine-1),
				n)
			continue
		}
		l, err := d.Decode(line)
		if err != nil {
			v.problem(problem(schemaCode(err), c.layer, "%v", err), n)
			continue
		}
		kinds[l.Schema]++
		if l.Seq-n != shift {
			shift = l.Seq - n
			v.problem(problem(CodeSeq, c.layer, "seq is %d, want %d", l.Seq, n), n)
		}
		if l.RunID != v.runID {
			v.problem(problem(CodeRunID, c.layer, "run_id is %.128q, the manifest says %q", l.RunID, v.runID), n)
		}
		if l.Turn != nil && l.Turn.Index != l.Seq {
			v.problem(problem(CodeSeq, c.layer, "index is not seq, %d", l.Seq), n)
		}
		if followed {
			item := Item{Path: c.layer, Number: int(n + 1), Line: line, Record: l}
			if l.Kernel != nil {
				c.kernel = append(c.kernel, *l.Kernel)
				item.Kernel = &c.kernel[len(c.kernel)-1]
			}
			c.items = append(c.items, item)
		}
		if e := l.Event; e != nil {
			points.add(e)
			if (e.Type == schema.RunStarted) != (n == 0) {
				v.problem(problem(CodeLifecycle, c.layer, "type is %.64q: the first line, and no other, is %s", e.Type,
					schema.RunStarted), n)
			}
			if ended == 0 && e.Type == schema.RunFinished {
				ended = n + 1
			}
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, n := range kinds {
		v.kinds[id] += n
	}
	v.grow(c)
	v.points.merge(points)
	if ended > 0 && (v.ended == 0 || ended < v.ended) {
		v.ended = ended
	}
}

// grow adds the leaves of a chunk to the layer's tree, and calls each with its items. It does so when all chunks before
// it were added. v.mu is held.
func (v *lineVerifier) grow(c chunk) {
	v.checked[c.index] = c
	for {
		c, ok := v.checked[v.next]
		if !ok {
			return
		}
		delete(v.checked, v.next)
		v.next++
		if c.layer == schema.EventsPath {
			v.events = append(v.events, c.leaves...)
		} else {
			for _, leaf := range c.leaves {
				v.tree.add(leaf)
			}
		}
		for i := range c.items {
			v.each(&c.items[i])
		}
		v.free <- c.buffer
	}
}

// end returns the lifecycle's last line, and whether it is run_finished. It is an error if the line is invalid.
func (v *lineVerifier) end() (last runEnd, ended bool, err error) {
	if len(v.lastEvent) == 0 {
		return last, false, nil
	}
	if err := schema.Validate(schema.EventV0, v.lastEvent); err != nil {
		return last, false, err
	}
	err = json.Unmarshal(v.lastEvent, &last)
	return last, last.Type == schema.RunFinished, err
}
