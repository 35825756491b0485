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

// source is one member to be sealed. Its bytes are the first size bytes of data, of held from offset, or of file.
type source struct {
	path   string
	size   int64
	data   []byte
	held   *os.File
	offset int64
	file   string  // a name
	wrote  *ledger // what the recorder wrote; nil if unknown
}

// take includes the whole file as it is now, after somebody else has changed it.
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

// open returns a reader of the bytes.
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

// errChanged is returned by writeBundle if a member is not as the recorder wrote it.
var errChanged = errors.New("a member was changed after it was written")

// writeBundle seals the members to out, which is for run.Output, in one pass over their bytes. The manifest's length is
// known in advance, so its place at the start is left free and filled at the end. changed is called for each member
// that is not as the recorder wrote it, with the offset of the change. If it returns true, the error is errChanged and
// nothing is sealed. It may be nil.
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

// fileSize returns the size of an open file; 0 on an error.
func fileSize(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// totalSize returns an upper limit of the tar's size.
func totalSize(sources []source) (n int64) {
	for _, src := range sources {
		n += src.size + 4*blockSize
	}
	return n + maxManifest
}

// writeMembers writes head, the packed members and the end of the tar to f, and puts their digests in files. Each
// member is read once for both, so that a digest always is that of the packed bytes.
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
	z := reportProgress(ctx, pack(out), totalSize(sources))
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

// copyMember packs the bytes of a member. at is the offset at which they differ from what the recorder wrote, or -1. A
// file that is too short is also an error.
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

// Sealed describes a finished bundle.
type Sealed struct {
	Path     string
	Identity string // "sha256:" and 64 hex digits: the digest of its manifest
	Bytes    int64  // its size on disk
	// Notes say what a recovery cut, found invalid, or reconstructed.
	Notes []string
	// ResultOutput is the path to which a recovered run should also write result.json; empty for none.
	ResultOutput string
	// Unchecked is true if no checkpoint of a recovered run covers run.json: the recorder was killed before its first
	// checkpoint.
	Unchecked bool
	// Tampered lists what others changed. The bundle says so too.
	Tampered []Tampered
	// Removed is what the last search for secrets removed; nil for nothing.
	Removed *schema.Removal
	// Result is the sealed result.json if Removed is not nil.
	Result []byte
}
