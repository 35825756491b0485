package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// input reads the decompressed tar of a bundle. Its errors are Problems.
type input struct {
	ctx        context.Context
	file       *os.File
	packed     *counter
	unpacked   int64
	z          io.ReadCloser
	onProgress func(done, total int64) // may be nil
	size       int64                   // of the file, for onProgress
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// openInput opens a bundle. The codec is detected by the first bytes.
func openInput(ctx context.Context, path string) (*input, error) {
	// O_NONBLOCK, since opening a pipe without a writer would block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if e := (*os.PathError)(nil); errors.As(err, &e) {
			err = e.Err // the caller names the file
		}
		return nil, problem(CodeUnreadable, "", "%v", err)
	}
	fail := func(code Code, format string, args ...any) (*input, error) {
		f.Close()
		return nil, problem(code, "", format, args...)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return fail(CodeUnreadable, "not a regular file")
	}
	head := make([]byte, blockSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return fail(CodeUnreadable, "%v", err)
	}
	head = head[:n]
	var c codec
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		c = gzipCodec
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		c = zstdCodec
	case len(head) == blockSize && bytes.HasPrefix(head[257:], []byte("ustar")):
		c = tarCodec
	case len(head) == 0:
		return fail(CodeTruncated, "the file is empty")
	default:
		return fail(CodeUnsupportedFormat, "neither gzip, nor zstd, nor a tar of the ustar kind")
	}
	in := &input{ctx: ctx, file: f, packed: &counter{r: f}, onProgress: progressOf(ctx), size: info.Size()}
	switch in.z, err = c.decompressor(in.packed); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fail(CodeTruncated, "the %d bytes of the file end within the first header", in.packed.n)
	case err != nil:
		return fail(CodeCompression, "%v, in the first header of the compressed stream", err)
	}
	return in, nil
}

func (in *input) Read(b []byte) (int, error) {
	if err := in.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := in.z.Read(b)
	in.unpacked += int64(n)
	if in.onProgress != nil {
		in.onProgress(in.packed.n, in.size)
	}
	if in.unpacked > bombFloor && in.unpacked > bombFloor+bombRatio*in.packed.n {
		return 0, problem(CodeBomb, "", "%d bytes unpacked to more than %d: more than %d times as much", in.packed.n,
			in.unpacked, bombRatio)
	}
	var pathErr *os.PathError
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.As(err, &pathErr):
		return n, problem(CodeUnreadable, "", "%v", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, problem(CodeTruncated, "", "the compressed stream ends early, after %d bytes", in.packed.n)
	}
	p := problem(CodeCompression, "", "%v, within the first %d bytes of the file", err, in.packed.n)
	p.cause = err
	return n, p
}

func (in *input) Close() error {
	in.z.Close()
	return in.file.Close()
}

// Input is a bundle that a user named.
type Input struct {
	// Name is the name that the user gave; "-" is standard input.
	Name string
	// Path is the file to read. For standard input it is a copy.
	Path string
	// Tap gets lines while Verified verifies. It may be nil.
	Tap Tap
}

// Open is [Open] with the input's name in errors.
func (in Input) Open() (*Reader, error) { return openAs(in.Path, in.Name) }

// Verified verifies the bundle and opens it. If the report says that the bundle is damaged or invalid, the Reader reads
// what it can. The Reader is nil if the bundle is unreadable.
func (in Input) Verified(ctx context.Context) (*Reader, *Report, error) {
	report, err := verify(ctx, in.Path, 1, in.Tap)
	if err != nil {
		return nil, nil, err
	}
	if report.Class() == Unreadable || report.Identity == "" {
		return nil, report, nil
	}
	if report.manifest == nil {
		return nil, report, fmt.Errorf("open %s: %w", in.Name, &report.Problems[0])
	}
	// If the file is replaced meanwhile, reading more of it is an error.
	r := &Reader{path: in.Path, name: in.Name, identity: report.Identity, manifest: *report.manifest}
	if r.sound = report.OK(); r.sound {
		r.verified = report.documents
	} else {
		r.tolerant = true
	}
	return r, report, nil
}

// Inputs are the bundles of one command.
type Inputs struct {
	All  []Input
	copy *os.File
}

// Close removes the copy of standard input.
func (in *Inputs) Close() error {
	if in.copy == nil {
		return nil
	}
	err := os.Remove(in.copy.Name())
	if errors.Is(err, os.ErrNotExist) {
		err = nil // it was removed at once; see copyStdin
	}
	return errors.Join(err, in.copy.Close())
}

// OpenInputs returns the bundles with these names. For "-" it copies stdin, since a bundle is read more than once; nil
// refuses "-". On Linux the copy has no name, so that nothing is left if the process is killed.
func OpenInputs(ctx context.Context, names []string, stdin io.Reader) (*Inputs, error) {
	in := &Inputs{}
	for _, name := range names {
		path := name
		if name == "-" {
			var err error
			if path, err = in.copyStdin(ctx, stdin); err != nil {
				in.Close()
				return nil, fmt.Errorf("read a bundle from standard input: %w", err)
			}
		}
		in.All = append(in.All, Input{Name: name, Path: path})
	}
	return in, nil
}

func (in *Inputs) copyStdin(ctx context.Context, stdin io.Reader) (string, error) {
	if stdin == nil {
		return "", errors.New("this command does not read it")
	}
	if in.copy != nil {
		return "", errors.New(`"-" can be given once`)
	}
	f, err := os.CreateTemp("", "assay-review-*")
	if err != nil {
		return "", err
	}
	in.copy = f
	path := f.Name()
	nameless := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.Stat(nameless); err == nil && os.Remove(path) == nil {
		path = nameless
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(f, stdin)
		copied <- err
	}()
	select {
	case err = <-copied:
	case <-ctx.Done(): // the read may never return
		err = ctx.Err()
	}
	return path, err
}
