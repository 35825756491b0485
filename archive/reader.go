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

	"github.com/assay-run/assay-run/schema"
)

// Reader reads a bundle that need not have been verified: it refuses what is
// not in the bundle's form and checks every digest of what it reads to the
// end, but not what the members say. It holds no file open between calls, and
// its methods are safe for concurrent use. Errors are Problems where the bundle
// is at fault.
type Reader struct {
	path     string
	name     string // path as the user knows it
	identity string
	manifest schema.Manifest
	tolerant bool // see Tolerate
	sound    bool // its documents have been checked against their schemas
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

// Identity is the bundle's identity, "sha256:" and 64 hex digits.
func (r *Reader) Identity() string { return r.identity }

// RunID is the run the bundle is of.
func (r *Reader) RunID() string { return r.manifest.RunID }

// start opens the bundle and reads its manifest, which must be the one that was
// read before.
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
		m, err := parseManifest(doc)
		return digest(sha256.Sum256(doc)), m, err
	}()
	if err == nil && r.identity != "" && identity != r.identity {
		err = errors.New("the file has changed since it was opened")
	}
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	if r.identity == "" {
		r.identity, r.manifest = identity, manifest
	}
	return in, w, nil
}

// Member is one file of a bundle, read in the order of the archive. It is valid
// until the next one is asked for. Reading it to io.EOF checks its digest.
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

// Lines iterates over a layer's lines, without their newlines. A line is valid
// until the next one. After an error there are no more.
func (m *Member) Lines() iter.Seq2[[]byte, error] {
	if m.tolerant {
		return m.validLines()
	}
	return m.lines()
}

func (m *Member) lines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		r := bufio.NewReaderSize(m, MaxLine+1)
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

// Members iterates over all members but the manifest. After an error there are
// no more; the context ends it early with its error.
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
			if !yield(&Member{Path: path, Size: size, w: w, h: sha256.New(), want: entry.SHA256, tolerant: r.tolerant, sound: r.sound}, nil) {
				return
			}
		}
	}
}

// Lines iterates over the lines of one layer, named by its path. A bundle
// without it has none.
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
