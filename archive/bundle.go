package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// source is one member to be sealed.
type source struct {
	path string
	size int64
	// One of them has the bytes, the first size of it.
	data   []byte
	held   *os.File
	offset int64  // in held
	file   string // a name
	// wrote is what the recorder wrote; nil where nobody knows.
	wrote *ledger
}

// take makes all of a file that somebody changed the member.
func (src *source) take() error {
	f := src.held
	if f == nil {
		if src.file == "" {
			return nil
		}
		var err error
		if f, err = openRegular(src.file, os.O_RDONLY); errors.Is(err, os.ErrNotExist) {
			src.data, src.file, src.size = []byte{}, "", 0
			return nil
		} else if err != nil {
			return err
		}
		defer f.Close()
	}
	src.size = fileSize(f)
	return nil
}

// open returns a reader of the bytes, from their start.
func (src *source) open() (io.ReadCloser, error) {
	switch {
	case src.held != nil:
		return io.NopCloser(io.NewSectionReader(src.held, src.offset, src.size)), nil
	case src.file != "":
		return openRegular(src.file, os.O_RDONLY)
	}
	return io.NopCloser(bytes.NewReader(src.data)), nil
}

// copyTo writes the bytes to w.
func (src *source) copyTo(w io.Writer) error {
	r, err := src.open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.CopyN(w, r, src.size)
	return err
}

// errChanged is the error of writeBundle when a member is not as it was written.
var errChanged = errors.New("a member was changed after it was written")

// writeBundle seals the members to out, the place of run.Output, in one pass over their bytes: the
// space for the manifest, whose length is known, is left at the start and filled at the end.
// changed is called for each member that is not as the recorder wrote it, with the place of the
// change. If it returns true, the error is errChanged and nothing was sealed. Nil ignores changes.
func writeBundle(ctx context.Context, run schema.Run, out *Output, sources []source,
	changed func(path string, at int64) bool) (_ Sealed, err error) {
	slices.SortFunc(sources, func(a, b source) int { return cmp.Compare(a.path, b.path) })
	if len(sources) >= maxMembers {
		return Sealed{}, fmt.Errorf("%d members are more than a bundle may hold (%d)", len(sources), maxMembers-1)
	}
	f, err := out.temp()
	if err != nil {
		return Sealed{}, err
	}
	defer f.Close()
	defer func() {
		if err != nil {
			out.discard()
		}
	}()
	c := codecOf(run.Output)
	m := schema.Manifest{Schema: schema.ManifestV0, RunID: run.RunID,
		Files: make(map[string]schema.ManifestFile, len(sources))}
	for _, src := range sources {
		m.Files[src.path] = manifestFile(src.path, src.size, [sha256.Size]byte{})
	}
	_, head, err := manifestChunk(c, m)
	if err != nil {
		return Sealed{}, err
	}
	pack := func(w io.Writer) io.WriteCloser { return newPacker(w, c) }
	if err := writeMembers(ctx, f, head, pack, sources, m.Files, changed); err != nil {
		return Sealed{}, err
	}
	doc, head, err := manifestChunk(c, m)
	if err != nil {
		return Sealed{}, err
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		return Sealed{}, err
	}
	size := fileSize(f)
	if err := ctx.Err(); err != nil {
		return Sealed{}, err
	}
	if err := out.commit(f); err != nil {
		return Sealed{}, err
	}
	return Sealed{Path: run.Output, Identity: digest(sha256.Sum256(doc)), Bytes: size}, nil
}

// fileSize is the size of an open file, 0 when it cannot be told.
func fileSize(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// totalSize is more than the members' tar takes.
func totalSize(sources []source) (n int64) {
	for _, src := range sources {
		n += src.size + 4*blockSize
	}
	return n + maxManifest
}

// writeMembers writes head, the packed members and the end of the tar to f,
// and puts their digests in files. What is hashed is what is packed, whatever
// happens to the files meanwhile.
func writeMembers(ctx context.Context, f *os.File, head []byte, pack func(io.Writer) io.WriteCloser, sources []source,
	files map[string]schema.ManifestFile, changed func(string, int64) bool) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 64<<10)
	if _, err := out.Write(head); err != nil {
		return err
	}
	z := tell(ctx, pack(out), totalSize(sources))
	defer z.Close()
	buf := make([]byte, 128<<10)
	again := false
	for _, src := range sources {
		if _, err := z.Write(appendHeaders(nil, src.path, src.size)); err != nil {
			return err
		}
		sum, at, err := copyMember(ctx, z, src, buf)
		if at >= 0 && changed != nil && changed(src.path, at) {
			if again = true; err != nil {
				break // it is shorter than it was
			}
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", src.path, err)
		}
		files[src.path] = manifestFile(src.path, src.size, sum)
		if err := writePadding(z, src.size); err != nil {
			return err
		}
	}
	if again {
		return errChanged
	}
	if _, err := z.Write(zeros[:]); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// copyMember packs the bytes of a member. at is where they differ from what the
// recorder wrote, -1 where they do not; a file that is too short is an error too.
func copyMember(ctx context.Context, w io.Writer, src source, buf []byte) (sum [sha256.Size]byte, at int64, err error) {
	at = -1
	r, err := src.open()
	if err != nil {
		if src.wrote != nil {
			at = 0
		}
		return sum, at, err
	}
	defer r.Close()
	read := newLedger()
	for left := src.size; left > 0; {
		if err := ctx.Err(); err != nil {
			return sum, at, err
		}
		n, err := io.ReadFull(r, buf[:min(left, int64(len(buf)))])
		read.Write(buf[:n])
		if err != nil {
			if src.wrote != nil {
				at = src.wrote.differs(read)
			}
			return sum, at, fmt.Errorf("%d of its %d bytes are missing: %w", left, src.size, err)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return sum, at, err
		}
		left -= int64(n)
	}
	if src.wrote != nil {
		at = src.wrote.differs(read)
	}
	return read.sum(), at, nil
}

// Sealed is a finished bundle.
type Sealed struct {
	Path     string // where it is
	Identity string // "sha256:" and 64 hex digits: the digest of its manifest
	Bytes    int64  // its size on disk
	// Notes say what a recovery cut, found bad, or had to make up.
	Notes []string
	// ResultOutput is where a recovered run's result.json was meant to go as well;
	// empty for nowhere else.
	ResultOutput string
	// Unchecked reports, of a recovered run, that no checkpoint covers run.json: the recorder
	// was killed before its first, or was of an earlier build.
	Unchecked bool
	// Tampered is what was found changed by others; the bundle says so too.
	Tampered []Tampered
	// Removed is what the last search before sealing took out; nil: nothing.
	Removed *schema.Removal
	// Result is result.json as it was sealed, where Removed is not nil; else nil.
	Result []byte
}
