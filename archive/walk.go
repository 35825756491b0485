package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// walker reads the members of a bundle's tar in order. It accepts only headers that appendHeaders would write. Its
// errors are Problems, io.EOF at a proper end, and the context's.
type walker struct {
	r    *bufio.Reader
	left int64  // bytes of the current member not yet read
	pad  int64  // bytes of padding after them
	last string // path of the current member
	seen map[string]bool
}

func newWalker(in io.Reader) *walker {
	return &walker{r: bufio.NewReaderSize(in, 64<<10), seen: map[string]bool{}}
}

// next skips the rest of the current member and returns the next one.
func (w *walker) next() (path string, size int64, err error) {
	if err := w.skip(); err != nil {
		return "", 0, err
	}
	var block [blockSize]byte
	if err := w.full(block[:], "a header"); err != nil {
		return "", 0, err
	}
	if block == [blockSize]byte{} {
		return "", 0, w.end()
	}
	raw := append([]byte(nil), block[:]...)
	pax := map[string]string{}
	if block[156] == 'x' && checksumOK(&block) {
		n, err := strconv.ParseInt(field(block[124:136]), 8, 64)
		if err != nil || n <= 0 || n > 2*blockSize {
			return "", 0, problem(CodeHeaderExtension, "", "a PAX record of size %q", field(block[124:136]))
		}
		body := make([]byte, n+padding(n))
		if err := w.full(body, "a PAX record"); err != nil {
			return "", 0, err
		}
		if pax = parsePAX(string(body[:n])); pax == nil {
			return "", 0, problem(CodeHeaderExtension, "", "a PAX record %.100q; only path and size are allowed",
				body[:n])
		}
		raw = append(raw, body...)
		if err := w.full(block[:], "a header"); err != nil {
			return "", 0, err
		}
		raw = append(raw, block[:]...)
	}
	path, size, err = parseHeader(&block, pax)
	if err != nil {
		return "", 0, err
	}
	if !bytes.Equal(raw, appendHeaders(nil, path, size)) {
		return "", 0, problem(CodeHeaderForm, path,
			"the header is not the one a member of this path and size has (mode 0644, uid, gid and mtime 0, no "+
				"names, no PAX record that is not needed)")
	}
	switch {
	case w.seen[path]:
		return "", 0, problem(CodeDuplicateMember, path, "the member occurs twice")
	case len(w.seen) >= maxMembers:
		return "", 0, problem(CodeLimit, "", "more than %d members", maxMembers)
	case len(w.seen) > 1 && path < w.last:
		return "", 0, problem(CodeOrder, path, "the member stands after %s", w.last)
	}
	w.seen[path] = true
	w.last = path
	w.left, w.pad = size, padding(size)
	return path, size, nil
}

// parseHeader returns the path and size in a header block. It accepts only regular files with a safe path.
func parseHeader(b *[blockSize]byte, pax map[string]string) (path string, size int64, err error) {
	if !checksumOK(b) {
		return "", 0, problem(CodeHeaderChecksum, "", "a header block whose checksum is wrong")
	}
	path = field(b[0:100])
	if prefix := field(b[345:500]); prefix != "" && bytes.HasPrefix(b[257:], []byte("ustar\x00")) {
		path = prefix + "/" + path
	}
	if p, ok := pax["path"]; ok {
		path = p
	}
	kind := b[156]
	switch {
	case strings.IndexByte("gLKSVNX", kind) >= 0 && kind != 0, kind == 'x':
		return "", 0, problem(CodeHeaderExtension, "", "an extension header of type %q", kind)
	case kind == 0 && !safePath(path) || kind == '0' && !safePath(path):
		return "", 0, problem(CodeUnsafePath, "", "path %.300q", path)
	case kind != '0' && kind != 0:
		name := map[byte]string{'1': "a hard link", '2': "a symbolic link", '3': "a character device",
			'4': "a block device", '5': "a directory", '6': "a pipe"}[kind]
		if name == "" {
			name = fmt.Sprintf("a member of type %q", kind)
		}
		return "", 0, problem(CodeMemberType, printable(path), "%s; only plain files may be in a bundle", name)
	}
	if size, err = strconv.ParseInt(field(b[124:136]), 8, 64); err != nil || size < 0 {
		return "", 0, problem(CodeHeaderForm, path, "size %q is not octal", b[124:136])
	}
	if s, ok := pax["size"]; ok {
		if size, err = strconv.ParseInt(s, 10, 64); err != nil || size < 0 || size > 1<<60 {
			return "", 0, problem(CodeHeaderExtension, path, "PAX size %.40q", s)
		}
	}
	return path, size, nil
}

// printable returns a member's path for messages; empty if it is not safe to print.
func printable(path string) string {
	if safePath(path) {
		return path
	}
	return ""
}

// field returns a header field up to its first NUL.
func field(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func checksumOK(b *[blockSize]byte) bool {
	sum := 8 * int(' ')
	for i, c := range b {
		if i < 148 || i >= 156 {
			sum += int(c)
		}
	}
	got, err := strconv.ParseInt(strings.Trim(field(b[148:156]), " "), 8, 64)
	return err == nil && got == int64(sum)
}

// parsePAX parses records with the keys path and size, each at most once. It returns nil for anything else.
func parsePAX(s string) map[string]string {
	m := map[string]string{}
	for s != "" {
		length, _, ok := strings.Cut(s, " ")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n <= len(length)+1 || n > len(s) || s[n-1] != '\n' {
			return nil
		}
		key, value, ok := strings.Cut(s[len(length)+1:n-1], "=")
		if _, twice := m[key]; !ok || twice || key != "path" && key != "size" {
			return nil
		}
		m[key] = value
		s = s[n:]
	}
	return m
}

// Read reads the current member, to io.EOF at its end.
func (w *walker) Read(b []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	n, err := w.r.Read(b[:min(int64(len(b)), w.left)])
	w.left -= int64(n)
	if err == io.EOF && w.left > 0 {
		err = problem(CodeTruncated, w.last, "%d bytes of the member are missing", w.left)
	} else if err == io.EOF {
		err = nil
	}
	return n, err
}

func (w *walker) skip() error {
	if _, err := io.Copy(io.Discard, w); err != nil {
		return err
	}
	var block [blockSize]byte
	if err := w.full(block[:w.pad], "padding"); err != nil {
		return err
	}
	if block != [blockSize]byte{} {
		return problem(CodeHeaderForm, w.last, "the padding after the member is not zero")
	}
	w.pad = 0
	return nil
}

// end reads the second of the two zero blocks at the end. Nothing may follow it.
func (w *walker) end() error {
	var block [blockSize]byte
	if err := w.full(block[:], "the end mark"); err != nil {
		return err
	}
	if block != [blockSize]byte{} {
		return problem(CodeTrailing, "", "data after the end of the archive")
	}
	_, err := w.r.ReadByte()
	var p *Problem
	switch {
	case err == nil:
		return problem(CodeTrailing, "", "data after the end of the archive")
	case errors.As(err, &p) && (errors.Is(p.cause, gzip.ErrHeader) || errors.Is(p.cause, zstd.ErrMagicMismatch)):
		return problem(CodeTrailing, "", "data after the end of the compressed stream")
	}
	return err // io.EOF
}

func (w *walker) full(b []byte, what string) error {
	_, err := io.ReadFull(w.r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return problem(CodeTruncated, "", "the archive ends where %s should be", what)
	}
	return err
}
