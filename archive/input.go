package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"syscall"
)

// A stream may unpack to bombFloor bytes and bombRatio times its packed size.
// Sealing keeps this rule too: what packs better is stored unpacked.
const (
	bombFloor = 256 << 20
	bombRatio = 200
)

// input is the unpacked tar of a bundle. Its errors are Problems.
type input struct {
	ctx      context.Context
	file     *os.File
	packed   *counter
	unpacked int64
	z        io.ReadCloser
	told     func(done, total int64) // nil for nobody
	size     int64                   // of the file, for told
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

// openInput opens a bundle, telling its codec by its first bytes.
func openInput(ctx context.Context, path string) (*input, error) {
	// Without waiting for the writer of a pipe that has none.
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
		c = plainCodec
	case len(head) == 0:
		return fail(CodeTruncated, "the file is empty")
	default:
		return fail(CodeUnsupportedFormat, "neither gzip, nor zstd, nor a tar of the ustar kind")
	}
	in := &input{ctx: ctx, file: f, packed: &counter{r: f}, told: progressOf(ctx), size: info.Size()}
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
	if in.told != nil {
		in.told(in.packed.n, in.size)
	}
	if in.unpacked > bombFloor && in.unpacked > bombFloor+bombRatio*in.packed.n {
		return 0, problem(CodeBomb, "", "%d bytes unpacked to more than %d: more than %d times as much", in.packed.n, in.unpacked, bombRatio)
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
