package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// Reader reads a bundle that need not be verified. It checks the format and the digest of each member that is read to
// the end, but not what the members say. It holds no file open between calls, and its methods are safe for concurrent
// use. Faults of the bundle are returned as a [Problem].
type Reader struct {
	path     string
	name     string // the user's name for path
	identity string
	manifest schema.Manifest
	// tolerant makes the Reader read what it can of a bundle that does not verify. It accepts members with wrong
	// digests, skips members that are not in the manifest and up to 100 invalid lines of a layer, stops where the
	// archive is damaged, and leaves documents empty that are missing, invalid or behind the damage. The report of
	// [Verify] says what is wrong.
	tolerant bool
	sound    bool              // its documents have been checked against their schemas
	verified map[string][]byte // documents that verification read, by path
}

// Open reads the manifest of a bundle.
func Open(path string) (*Reader, error) { return openAs(path, path) }

func openAs(path, name string) (*Reader, error) {
	r := &Reader{path: path, name: name}
	in, _, err := r.start(context.Background())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return r, in.Close()
}

// Manifest lists the members. It must not be changed.
func (r *Reader) Manifest() schema.Manifest { return r.manifest }

// Identity returns the bundle's identity, "sha256:" and 64 hex digits.
func (r *Reader) Identity() string { return r.identity }

// RunID returns the id of the bundle's run.
func (r *Reader) RunID() string { return r.manifest.RunID }

// start opens the bundle and reads its manifest, which must be the same as before.
func (r *Reader) start(ctx context.Context) (*input, *walker, error) {
	in, err := openInput(ctx, r.path)
	if err != nil {
		return nil, nil, err
	}
	w := newWalker(in)
	identity, manifest, err := func() (string, schema.Manifest, error) {
		path, size, err := w.next()
		if err == io.EOF {
			err = problem(CodeManifestFirst, "", "the archive is empty")
		}
		if err != nil {
			return "", schema.Manifest{}, err
		}
		doc, err := manifestBytes(w, path, size)
		if err != nil {
			return "", schema.Manifest{}, err
		}
		switch identity := digest(sha256.Sum256(doc)); r.identity {
		case "":
			m, err := parseManifest(doc)
			return identity, m, err
		case identity:
			return identity, r.manifest, nil
		}
		return "", schema.Manifest{}, errors.New("the file has changed since it was opened")
	}()
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	if r.identity == "" {
		r.identity, r.manifest = identity, manifest
	}
	return in, w, nil
}

// Member is one file of a bundle. It is valid until the iteration goes on. Reading it to io.EOF checks its digest.
type Member struct {
	Path string
	Size int64 // bytes

	w        *walker
	h        hash.Hash
	want     string
	tolerant bool
	sound    bool
	err      error
}

// Read reads the member's bytes.
func (m *Member) Read(b []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.w.Read(b)
	m.h.Write(b[:n])
	if m.tolerant && isProblem(err) {
		err = io.EOF
	}
	if err == io.EOF && !m.tolerant {
		if got := digest([sha256.Size]byte(m.h.Sum(nil))); got != m.want {
			err = problem(CodeDigest, m.Path, "its digest is %s, the manifest says %s", got, m.want)
		}
	}
	m.err = err
	return n, err
}

// Lines iterates over a layer's lines without their newlines. A line is valid until the next one. It ends after an
// error.
func (m *Member) Lines() iter.Seq2[[]byte, error] {
	if m.tolerant {
		return m.validLines()
	}
	return m.lines()
}

func (m *Member) lines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		r := bufio.NewReaderSize(m, int(min(m.Size, MaxLine))+1)
		for n := uint64(1); ; n++ {
			line, err := r.ReadSlice('\n')
			if err == io.EOF && len(line) == 0 {
				return
			}
			if err == io.EOF || errors.Is(err, bufio.ErrBufferFull) {
				p := problem(CodeUnterminated, m.Path, "a line without a newline, or of more than %d bytes", MaxLine)
				p.Line = n
				err = p
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(bytes.TrimSuffix(line, []byte{'\n'}), nil) {
				return
			}
		}
	}
}

// Members iterates over all members but the manifest, in the order of the archive. It ends after an error, which may be
// that of the context.
func (r *Reader) Members(ctx context.Context) iter.Seq2[*Member, error] {
	return func(yield func(*Member, error) bool) {
		in, w, err := r.start(ctx)
		if err != nil {
			yield(nil, fmt.Errorf("read %s: %w", r.name, err))
			return
		}
		defer in.Close()
		for {
			path, size, err := w.next()
			if err == io.EOF || r.tolerant && isProblem(err) {
				return
			}
			entry, listed := r.manifest.Files[path]
			if err == nil && !listed && r.tolerant {
				continue
			}
			if p := unlisted(path, size, entry, listed); err == nil && p != nil && !r.tolerant {
				err = p
			}
			if err != nil {
				yield(nil, fmt.Errorf("read %s: %w", r.name, err))
				return
			}
			if !yield(&Member{Path: path, Size: size, w: w, h: sha256.New(), want: entry.SHA256, tolerant: r.tolerant,
				sound: r.sound}, nil) {
				return
			}
		}
	}
}

// Lines iterates over the lines of the layer at a path. A missing layer has none.
func (r *Reader) Lines(ctx context.Context, layer string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for m, err := range r.Members(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			if m.Path != layer {
				continue
			}
			for line, err := range m.Lines() {
				if !yield(line, err) {
					return
				}
			}
			return
		}
	}
}

// Item is a decoded line of a layer, or another member as a whole. It is valid until the next one.
type Item struct {
	Path string // of the member
	// Line is the exact line without its newline, and Number its number in the layer, from 1.
	Line   []byte
	Number int
	schema.Record
	// Member is nil for lines.
	Member *Member
}

// Items reads the members at some paths in one pass, in the order of the archive. It ends after an error, which names
// the line.
func (r *Reader) Items(ctx context.Context, paths ...string) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for m, err := range r.Members(ctx) {
			switch {
			case err != nil:
				yield(nil, err)
				return
			case m.Path > slices.Max(paths):
				return // members are sorted by path
			case !slices.Contains(paths, m.Path):
			case isLayer(m.Path):
				if !m.items(yield) {
					return
				}
			case !yield(&Item{Path: m.Path, Member: m}, nil):
				return
			}
		}
	}
}

// items yields the lines of a layer. It reports whether the iteration goes on.
func (m *Member) items(yield func(*Item, error) bool) bool {
	decoder := schema.NewLineDecoder(m.Path)
	it := Item{Path: m.Path}
	for line, err := range m.Lines() {
		it.Number++
		if it.Line = line; err == nil {
			it.Record, err = decoder.Decode(line)
		}
		if err != nil {
			yield(nil, fmt.Errorf("%s: line %d: %w", m.Path, it.Number, err))
			return false
		}
		if !yield(&it, nil) {
			return false
		}
	}
	return true
}

// Scanned is an item with the result of a worker of [Scan].
type Scanned[T any] struct {
	Item
	Result T
}

// batch holds lines for one worker of [Scan].
type batch[T any] struct {
	first  int // number of its first line
	data   []byte
	ends   []int                // end of each line in data
	kernel []schema.KernelEvent // storage for the items in done
	done   []Scanned[T]
	err    error // of the line after done
	ready  chan struct{}
}

// batchLines is the number of lines in a batch.
const batchLines = 512

// Scan is [Reader.Items] for one layer on all cores. It calls worker once for each core, and the returned functions
// once for each line. It yields the items with the results in the order of the layer. Each is valid until the next one.
// It ends after an error, which names the line.
func Scan[T any](ctx context.Context, r *Reader, layer string,
	worker func() func(*Item) (T, error)) iter.Seq2[*Scanned[T], error] {
	return func(yield func(*Scanned[T], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		cores := runtime.GOMAXPROCS(0)
		work, order := make(chan *batch[T], cores), make(chan *batch[T], 2*cores)
		free := make(chan *batch[T], 4*cores)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range cores {
			each, decoder := worker(), schema.NewLineDecoder(layer)
			all.Go(func() {
				for b := range work {
					b.run(layer, decoder, each)
					close(b.ready)
				}
			})
		}
		all.Go(func() {
			defer close(work)
			defer close(order)
			sendBatches(ctx, r, layer, free, func(b *batch[T]) bool {
				for _, to := range []chan<- *batch[T]{order, work} {
					select {
					case to <- b:
					case <-ctx.Done():
						return false
					}
				}
				return true
			})
		})
		for b := range order {
			select {
			case <-b.ready:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
			for i := range b.done {
				if !yield(&b.done[i], nil) {
					return
				}
			}
			if b.err != nil {
				yield(nil, b.err)
				return
			}
			select {
			case free <- b:
			default:
			}
		}
		if ctx.Err() != nil {
			yield(nil, ctx.Err())
		}
	}
}

// sendBatches sends the lines of a layer in batches. It reuses memory from free.
func sendBatches[T any](ctx context.Context, r *Reader, layer string, free <-chan *batch[T],
	send func(*batch[T]) bool) {
	next := func(first int) *batch[T] {
		b := &batch[T]{}
		select {
		case b = <-free:
		default:
		}
		return &batch[T]{first: first, data: b.data[:0], ends: b.ends[:0], kernel: b.kernel[:0], done: b.done[:0],
			ready: make(chan struct{})}
	}
	n := 1
	b := next(n)
	for line, err := range r.Lines(ctx, layer) {
		if err != nil {
			b.err = err
			break
		}
		n++
		b.data = append(b.data, line...)
		if b.ends = append(b.ends, len(b.data)); len(b.ends) == batchLines {
			if !send(b) {
				return
			}
			b = next(n)
		}
	}
	send(b)
}

// run decodes the lines and calls each for them, up to the first error.
func (b *batch[T]) run(layer string, decoder *schema.LineDecoder, each func(*Item) (T, error)) {
	b.kernel = slices.Grow(b.kernel, len(b.ends)) // the items point into it, so it must not move
	start := 0
	for i, end := range b.ends {
		s := Scanned[T]{Item: Item{Path: layer, Number: b.first + i, Line: b.data[start:end]}}
		var err error
		if s.Record, err = decoder.Decode(s.Line); err == nil && s.Kernel != nil {
			b.kernel = append(b.kernel, *s.Kernel)
			s.Kernel = &b.kernel[i]
		}
		if err == nil {
			s.Result, err = each(&s.Item)
		}
		if err != nil {
			b.err = fmt.Errorf("%s: line %d: %w", layer, s.Number, err)
			return
		}
		b.done = append(b.done, s)
		start = end
	}
}

// Documents are the JSON members of a bundle.
type Documents struct {
	Run         schema.Run
	Result      schema.Result
	Health      schema.ObservationHealth
	Surface     schema.CapabilitySurface
	Correlation schema.CorrelationReport
	// Policy is nil in a run without a policy and a sandbox.
	Policy *schema.Policy
	// Contract is nil in a run without an outcome contract.
	Contract *schema.Contract
	// Evaluation is nil in a run without an evaluation file.
	Evaluation *schema.Evaluation
}

// Labels are those of the run and of its result, which may know more. It is not nil.
func (d *Documents) Labels() map[string]string {
	all := map[string]string{}
	maps.Copy(all, d.Run.Labels)
	maps.Copy(all, d.Result.Labels)
	return all
}

// Documents returns the documents, each checked against its schema. It reads the bundle only as far as needed for those
// that verification did not keep. Documents at the paths in without stay empty: the surface of a large run takes 64
// MiB.
func (r *Reader) Documents(ctx context.Context, without ...string) (*Documents, error) {
	d := &Documents{}
	left := map[string]any{
		schema.RunPath: &d.Run, schema.ResultPath: &d.Result, schema.HealthPath: &d.Health,
		schema.SurfacePath: &d.Surface, schema.CorrelationPath: &d.Correlation,
	}
	if _, ok := r.manifest.Files[schema.PolicyFilePath]; ok {
		d.Policy = &schema.Policy{}
		left[schema.PolicyFilePath] = d.Policy
	}
	if _, ok := r.manifest.Files[schema.ContractPath]; ok {
		d.Contract = &schema.Contract{}
		left[schema.ContractPath] = d.Contract
	}
	if _, ok := r.manifest.Files[schema.EvaluationPath]; ok {
		d.Evaluation = &schema.Evaluation{}
		left[schema.EvaluationPath] = d.Evaluation
	}
	for path, into := range left {
		doc, ok := r.verified[path]
		switch _, listed := r.manifest.Files[path]; {
		case listed && slices.Contains(without, path):
			delete(left, path)
		case !ok:
		default:
			if err := json.Unmarshal(doc, into); err != nil {
				return nil, fmt.Errorf("read %s: %w", r.name, problem(CodeSchema, path, "%v", err))
			}
			delete(left, path)
		}
	}
	if len(left) == 0 {
		return d, nil
	}
	for m, err := range r.Members(ctx) {
		if err != nil {
			return nil, err
		}
		into := left[m.Path]
		if into == nil {
			continue
		}
		delete(left, m.Path)
		decode := m.decode
		if m.Path == schema.SurfacePath {
			decode = m.decodeSurface
		}
		if err := decode(into); err != nil && !(r.tolerant && ctx.Err() == nil) {
			return nil, fmt.Errorf("read %s: %w", r.name, err)
		}
		if len(left) == 0 {
			break
		}
	}
	if r.tolerant && left[schema.ContractPath] != nil {
		d.Contract = nil
	}
	if r.tolerant && left[schema.EvaluationPath] != nil {
		d.Evaluation = nil
	}
	for path := range left {
		if r.tolerant {
			break
		}
		return nil, fmt.Errorf("read %s: %w", r.name,
			problem(CodeRequired, path, "every bundle has this member, this one does not"))
	}
	return d, nil
}

func (m *Member) decodeSurface(v any) (err error) {
	s := v.(*schema.CapabilitySurface)
	lists := emptySurface(s)
	if m.Size > maxDocument {
		return problem(CodeLimit, m.Path, "%d bytes, at most %d are allowed", m.Size, maxDocument)
	}
	s.RunID, err = schema.ReadSurface(m, func(list, value string) { *lists[list] = append(*lists[list], value) })
	var unsorted *schema.UnsortedError
	switch {
	case errors.As(err, &unsorted):
		return nil // verify reports it
	case err != nil && schemaRefused(err):
		return problem(schemaCode(err), m.Path, "%v", err)
	}
	return err
}

func (m *Member) decode(v any) error {
	doc, err := readAll(m, m.Path, m.Size, maxDocument)
	if err != nil {
		return err
	}
	if !m.sound {
		if err := schema.Validate(documentSchema(m.Path), doc); err != nil {
			return problem(schemaCode(err), m.Path, "%v", err)
		}
	}
	if err := json.Unmarshal(doc, v); err != nil {
		return problem(CodeSchema, m.Path, "%v", err)
	}
	return nil
}

// validLines iterates over the valid lines of a layer up to the damage. It ends after maxProblems invalid lines.
func (m *Member) validLines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		decoder := schema.NewLineDecoder(m.Path)
		invalid := 0
		valid := func(line []byte) bool {
			_, err := decoder.Decode(line)
			return err == nil
		}
		for line, err := range m.lines() {
			if isProblem(err) {
				return
			}
			if err == nil && !valid(line) {
				if invalid++; invalid >= maxProblems {
					return
				}
				continue
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// isProblem reports whether err is a fault of the bundle rather than of reading it.
func isProblem(err error) bool {
	var p *Problem
	return errors.As(err, &p)
}
