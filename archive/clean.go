package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// cleaner takes the secrets out of members that were written before. What the members
// say about each other holds afterwards as it did before: the digests of blobs, the
// checkpoints, the sizes of what was captured. It is used once.
type cleaner struct {
	memberReader
	r   *redact.Redactor
	out *scratch

	points    checkpoints // as the lifecycle had them
	layers    map[string]map[uint64]schema.LayerTree
	members   map[string]map[int64]schema.MemberBytes // the same of what is written now
	integrity schema.Integrity
	blobs     []string         // what a turn says of a blob, and what it shall say
	grown     map[string]int64 // bytes by which a capture became longer
	lost      map[string]uint64
	dropped   []string // members that secrets could not be taken out of
}

// memberReader reads members that were written before, and collects which of them are
// not what the recorder wrote.
type memberReader struct {
	ctx      context.Context
	tampered []Tampered
}

func newCleaner(ctx context.Context, r *redact.Redactor, out *scratch, runID string) *cleaner {
	return &cleaner{
		memberReader: memberReader{ctx: ctx}, r: r, out: out, layers: map[string]map[uint64]schema.LayerTree{}, members: map[string]map[int64]schema.MemberBytes{},
		integrity: schema.Integrity{Schema: schema.IntegrityV0, RunID: runID, Checkpoint: schema.Checkpoint{Layers: map[string]schema.LayerTree{}}},
		grown:     map[string]int64{}, lost: map[string]uint64{},
	}
}

// clean returns the members without secrets, and what was taken out. The documents
// are in memory then.
func (c *cleaner) clean(sources []source) ([]source, schema.Removal, error) {
	total, rules, fields := c.r.Counts()
	fail := func(err error) ([]source, schema.Removal, error) {
		return nil, schema.Removal{}, fmt.Errorf("take secrets out of %w", err)
	}
	i := slices.IndexFunc(sources, func(src source) bool { return src.path == schema.EventsPath })
	err := c.lines(sources[i], func(line []byte, _ bool) error { c.points.line(line); return nil })
	if err != nil {
		return fail(err)
	}
	var done []source
	have := map[string]bool{}
	// Each kind is written when all that it tells of is.
	for _, kind := range []struct {
		is    func(string) bool
		clean func(source) (source, error)
	}{
		{func(p string) bool { return !isLayer(p) && documentSchema(p) == "" }, c.capture},
		{func(p string) bool { return isLayer(p) && p != schema.EventsPath }, c.layer},
		{func(p string) bool { return p == schema.EventsPath }, c.layer},
		{func(p string) bool { return documentSchema(p) != "" && p != schema.IntegrityPath }, c.document},
	} {
		for _, src := range sources {
			if !kind.is(src.path) {
				continue
			}
			clean, err := kind.clean(src)
			if err != nil {
				return fail(err)
			}
			if clean.path != "" && !have[clean.path] { // two blobs may be the same now
				done = append(done, clean)
				have[clean.path] = true
			}
		}
	}
	if err := c.account(done); err != nil {
		return fail(err)
	}
	doc, err := schema.Document(c.integrity)
	if err != nil {
		return fail(err)
	}
	done = append(done, source{path: schema.IntegrityPath, size: int64(len(doc)), data: doc})
	slices.Sort(c.dropped)
	return done, c.since(total, rules, fields), nil
}

// since is what was taken out since the counts were these.
func (c *cleaner) since(total uint64, rules, fields map[string]uint64) schema.Removal {
	now, byRule, byField := c.r.Counts()
	less := func(m, before map[string]uint64) map[string]uint64 {
		for k, n := range before {
			m[k] -= n
		}
		maps.DeleteFunc(m, func(_ string, n uint64) bool { return n == 0 })
		return m
	}
	return schema.Removal{RedactedCount: now - total, ByRule: less(byRule, rules), ByField: less(byField, fields), Dropped: c.dropped}
}

// read has f read a member, and notes where it is not what the recorder wrote.
func (m *memberReader) read(src source, f func(io.Reader) error) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	in, err := src.open()
	if err != nil {
		return err
	}
	defer in.Close()
	seen := newLedger()
	r := io.Reader(io.LimitReader(in, src.size))
	if src.wrote != nil {
		r = io.TeeReader(r, seen)
	}
	if err := f(r); err != nil {
		return fmt.Errorf("%s: %w", src.path, err)
	}
	if src.wrote == nil {
		return nil
	}
	if at := src.wrote.differs(seen); at >= 0 && !slices.ContainsFunc(m.tampered, func(t Tampered) bool { return t.Path == src.path }) {
		m.tampered = append(m.tampered, wasChanged(src.path, at))
	}
	return nil
}

// lines calls f with each line of a layer. One that is not whole, at the end or since
// it is longer than any that is written, comes in parts.
func (m *memberReader) lines(src source, f func(line []byte, whole bool) error) error {
	return m.read(src, func(r io.Reader) error {
		in := bufio.NewReaderSize(r, MaxLine+1)
		for {
			line, err := in.ReadSlice('\n')
			if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
				return err
			}
			if len(line) > 0 {
				if ferr := f(bytes.TrimSuffix(line, []byte{'\n'}), err == nil); ferr != nil {
					return ferr
				}
			}
			if err == io.EOF {
				return nil
			}
		}
	})
}

// capture cleans bytes that have no schema.
func (c *cleaner) capture(src source) (source, error) {
	due := slices.Sorted(func(yield func(int64) bool) {
		for _, m := range c.points.members[src.path] {
			if !yield(m.Bytes) {
				return
			}
		}
	})
	state := newBytesCheck(nil)
	clean, err := c.out.member(src.path, func(w io.Writer) error {
		to := c.writer(src.path, nopClose{io.MultiWriter(w, state)})
		marks := map[int64]schema.MemberBytes{0: state.state()}
		err := c.read(src, func(r io.Reader) error {
			at := int64(0)
			for _, next := range due {
				n, err := io.CopyN(to, r, next-at)
				if at += n; err == io.EOF {
					break
				} else if err != nil {
					return err
				}
				marks[at] = state.state()
			}
			_, err := io.Copy(to, r)
			return err
		})
		c.members[src.path] = marks
		return errors.Join(err, to.Close())
	})
	if err != nil {
		return source{}, err
	}
	held, err := holds(c.ctx, c.r, clean)
	if err != nil {
		return source{}, err
	}
	if held {
		c.dropped = append(c.dropped, src.path)
		delete(c.members, src.path)
		return source{}, nil
	}
	c.grown[src.path] = clean.size - src.size
	if isStream(src.path) {
		if c.integrity.Members == nil {
			c.integrity.Members = map[string]schema.MemberBytes{}
		}
		c.integrity.Members[src.path] = state.state()
	}
	if name, ok := strings.CutPrefix(src.path, schema.BlobsDir); ok {
		now := strings.TrimPrefix(state.state().SHA256, "sha256:")
		if now != name {
			clean.path = schema.BlobsDir + now
			const about = `"bytes":%d,"sha256":"sha256:%s"`
			c.blobs = append(c.blobs, fmt.Sprintf(about, src.size, name), fmt.Sprintf(about, clean.size, now), name, now)
		}
	}
	return clean, nil
}

type nopClose struct{ io.Writer }

func (nopClose) Close() error { return nil }

// writer takes the secrets out of a capture on its way to w.
func (c *cleaner) writer(path string, w io.WriteCloser) io.WriteCloser {
	if path == schema.TerminalPath {
		return &castWriter{r: c.r, text: c.r.Pieces(path), w: w}
	}
	return c.r.Writer(path, w)
}

// holds tells whether a known secret stands in a member.
func holds(ctx context.Context, r *redact.Redactor, src source) (bool, error) {
	longest := r.Longest()
	if longest == 0 {
		return false, nil // none is known
	}
	in, err := src.open()
	if err != nil {
		return false, err
	}
	defer in.Close()
	buf := make([]byte, 0, max(256<<10, 4*longest))
	for left := src.size; ; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(in, buf[len(buf):int64(len(buf))+min(left, int64(cap(buf)-len(buf)))])
		buf, left = buf[:len(buf)+n], left-int64(n)
		if r.Finds(buf) {
			return true, nil
		}
		if left == 0 || err != nil {
			return false, ignoreEnd(err)
		}
		keep := max(0, longest-1) // a secret may go on in what comes
		buf = buf[:copy(buf, buf[max(0, len(buf)-keep):])]
	}
}

// ignoreEnd takes the end of a member that is shorter than it was for its end.
func ignoreEnd(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
