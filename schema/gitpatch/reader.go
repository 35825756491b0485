package gitpatch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zlib"
)

// ErrForm is the error of a patch that no [Writer] wrote, wrapped with what is wrong.
var ErrForm = errors.New("not a patch in the form of assay-run")

// Section is what a patch does to one path.
type Section struct {
	Name string
	// From is nil for a path that is created, To for one that is deleted. The ids are empty where only the mode
	// changes.
	From, To *State
	// HasContent tells that Read yields the new content. Without it there is none, or it stays as it was.
	HasContent bool
}

// Equal reports whether two sections do the same, apart from the content.
func (s *Section) Equal(o *Section) bool {
	same := func(a, b *State) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return s.Name == o.Name && same(s.From, o.From) && same(s.To, o.To) && s.HasContent == o.HasContent
}

// Reader reads the sections of a patch. It is not safe for concurrent use.
type Reader struct {
	in      *bufio.Reader
	peeked  []byte // a line that is not consumed yet; nil: none
	content io.Reader
	raw     *bytes.Buffer // nil: not kept
	back    bool          // an empty content for the way back follows
	err     error         // sticky
}

// NewReader reads a patch from r. Lines of more than 64 KiB are an error.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(r, maxLine)} }

const maxLine = 64 << 10

// KeepRaw has the reader keep the bytes of the section that it reads.
func (r *Reader) KeepRaw() { r.raw = new(bytes.Buffer) }

// Raw is the section so far, as it stands in the patch. It is valid until Next.
func (r *Reader) Raw() []byte { return r.raw.Bytes() }

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrForm, fmt.Sprintf(format, args...))
}

// peek is the next line with its newline; nil at the end.
func (r *Reader) peek() ([]byte, error) {
	if r.peeked != nil {
		return r.peeked, nil
	}
	line, err := r.in.ReadSlice('\n')
	switch {
	case err == io.EOF && len(line) == 0:
		return nil, nil
	case err == io.EOF:
		return nil, wrong("the last line has no newline")
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, wrong("a line of more than %d bytes", maxLine)
	case err != nil:
		return nil, err
	}
	r.peeked = line
	return line, nil
}

// line consumes the next line, which is valid until the one after it.
func (r *Reader) line() ([]byte, error) {
	line, err := r.peek()
	if err == nil && line == nil {
		err = wrong("it ends within a section")
	}
	if err != nil {
		return nil, err
	}
	if r.peeked = nil; r.raw != nil {
		r.raw.Write(line)
	}
	return line[:len(line)-1], nil
}

// cut consumes the next line if it begins with a prefix, and returns the rest of it.
func (r *Reader) cut(prefix string) (rest string, ok bool, err error) {
	line, err := r.peek()
	if err != nil || !bytes.HasPrefix(line, []byte(prefix)) {
		return "", false, err
	}
	if _, err := r.line(); err != nil {
		return "", false, err
	}
	return strings.TrimSuffix(string(line[len(prefix):]), "\n"), true, nil
}

// Next begins the next section, and reads past what is left of the one before. At the end it returns io.EOF.
func (r *Reader) Next() (*Section, error) {
	if r.err == nil {
		_, r.err = io.Copy(io.Discard, readerOf{r})
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.raw != nil {
		r.raw.Reset()
	}
	s, err := r.section()
	r.err = err
	return s, err
}

func (r *Reader) section() (*Section, error) {
	head, ok, err := r.cut("diff --git ")
	if err != nil {
		return nil, err
	}
	if !ok {
		if line, _ := r.peek(); line == nil {
			return nil, io.EOF
		}
		return nil, wrong("no section begins where one is due")
	}
	s := &Section{}
	if half := len(head) / 2; len(head)%2 == 1 && head[half] == ' ' { // both names are as long
		if name, ok := unquote("a/", head[:half]); ok && head[half+1:] == quote("b/", name) {
			s.Name = name
		}
	}
	if s.Name == "" {
		return nil, wrong("a section has no name: %.200q", head)
	}
	if err := r.states(s); err != nil {
		return nil, fmt.Errorf("%.200q: %w", s.Name, err)
	}
	return s, nil
}

// states reads the rest of a section's head.
func (r *Reader) states(s *Section) error {
	created, isNew, err := r.cut("new file mode ")
	if err != nil {
		return err
	}
	deleted, isGone, err := r.cut("deleted file mode ")
	if err != nil {
		return err
	}
	before, changed, err := r.cut("old mode ")
	if err != nil {
		return err
	}
	var after string
	if changed {
		var ok bool
		if after, ok, err = r.cut("new mode "); err != nil || !ok {
			return errors.Join(err, wrong("no new mode"))
		}
	}
	ids, hasIDs, err := r.cut("index ")
	if err != nil {
		return err
	}
	if !isNew && !isGone && !changed {
		if ids, before, hasIDs = strings.Cut(ids, " "); !hasIDs {
			return wrong("no mode")
		}
		after = before
	}
	from, to := "", ""
	if hasIDs {
		from, to, _ = strings.Cut(ids, "..")
		if !isID(from) || !isID(to) || (from == noID) != isNew || (to == noID) != isGone {
			return wrong("its ids are %.100q", ids)
		}
	} else if !changed {
		return wrong("no ids")
	}
	if !isNew {
		s.From = &State{ID: from}
		if s.From.Mode, err = mode(deleted + before); err != nil {
			return err
		}
	}
	if !isGone {
		s.To = &State{ID: to}
		if s.To.Mode, err = mode(created + after); err != nil {
			return err
		}
	}
	return r.body(s, hasIDs)
}

func isID(s string) bool { return len(s) == len(noID) && strings.Trim(s, "0123456789abcdef") == "" }

func mode(s string) (uint32, error) {
	switch n, err := strconv.ParseUint(s, 8, 32); {
	case err == nil && (n == File || n == Executable || n == Link) && len(s) == 6:
		return uint32(n), nil
	}
	return 0, wrong("the mode %.20q", s)
}

// body prepares to read the content.
func (r *Reader) body(s *Section, hasIDs bool) error {
	switch _, binary, err := r.cut(binaryHead); {
	case err != nil:
		return err
	case binary:
		if !hasIDs {
			return wrong("a content without ids")
		}
		if r.content, err = r.literal(); err != nil {
			return err
		}
		r.back = s.From == nil
		if s.To == nil {
			if n, err := io.Copy(io.Discard, readerOf{r}); err != nil || n > 0 {
				return errors.Join(err, wrong("it is deleted, and has a content"))
			}
			return nil
		}
		s.HasContent = true
		return nil
	}
	_, text, err := r.cut("--- /dev/null\n")
	switch {
	case err != nil:
		return err
	case !text:
		empty := ID(nil)
		if hasIDs && (s.To != nil && s.To.ID != empty || s.To == nil && s.From.ID != empty) {
			return wrong("a content is missing")
		}
		s.HasContent = hasIDs && s.To != nil
		return nil
	case s.From != nil:
		return wrong("an added text for what was there")
	}
	if _, ok, err := r.cut("+++ " + quote("b/", s.Name) + "\n"); err != nil || !ok {
		return errors.Join(err, wrong("the text is of another name"))
	}
	head, ok, err := r.cut("@@ -0,0 +1,")
	if err != nil || !ok {
		return errors.Join(err, wrong("no hunk of added lines"))
	}
	digits, _ := strings.CutSuffix(head, " @@")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n == 0 {
		return wrong("a hunk of %.20q lines", digits)
	}
	r.content, s.HasContent = &textReader{r: r, left: int(n)}, true
	return nil
}

// Read reads the new content of the section that Next returned.
func (r *Reader) Read(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := readerOf{r}.Read(b)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// readerOf reads the content of a section without its sticky error.
type readerOf struct{ r *Reader }

func (c readerOf) Read(b []byte) (int, error) {
	r := c.r
	if r.content == nil {
		return 0, io.EOF
	}
	n, err := r.content.Read(b)
	if err != io.EOF {
		return n, err
	}
	r.content = nil
	if r.back {
		r.back = false
		if r.content, err = r.literal(); err != nil {
			return n, err
		}
		if more, err := io.Copy(io.Discard, r.content); err != nil || more > 0 {
			return n, errors.Join(err, wrong("a content for the way back"))
		}
		r.content = nil
	}
	return n, io.EOF
}

// textReader reads the added lines of a hunk.
type textReader struct {
	r    *Reader
	left int // lines
	rest []byte
}

func (t *textReader) Read(b []byte) (int, error) {
	for len(t.rest) == 0 {
		if t.left == 0 {
			return 0, io.EOF
		}
		line, err := t.r.line()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 || line[0] != '+' {
			return 0, wrong("a line that is not added")
		}
		t.rest = append(bytes.Clone(line[1:]), '\n')
		if t.left--; t.left > 0 {
			continue
		}
		_, cut, err := t.r.cut(unended)
		if err != nil {
			return 0, err
		}
		if cut {
			t.rest = t.rest[:len(t.rest)-1]
		}
		if len(t.rest) == 0 {
			return 0, wrong("an empty last line without its end")
		}
	}
	n := copy(b, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// literal begins a content in the binary form.
func (r *Reader) literal() (io.Reader, error) {
	digits, ok, err := r.cut("literal ")
	if err != nil || !ok {
		return nil, errors.Join(err, wrong("no literal content"))
	}
	size, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || strconv.FormatUint(size, 10) != digits {
		return nil, wrong("a content of %.20q bytes", digits)
	}
	return &literalReader{digits: digitReader{r: r}, left: int64(size)}, nil
}

// literalReader unpacks a content, which must be as long as it says.
type literalReader struct {
	digits digitReader
	z      io.ReadCloser
	left   int64
}

func (l *literalReader) Read(b []byte) (n int, err error) {
	if l.z == nil {
		if l.z, err = zlib.NewReader(&l.digits); err != nil {
			return 0, packed(err)
		}
	}
	if n, err = l.z.Read(b[:min(int64(len(b)), l.left+1)]); int64(n) > l.left {
		return 0, wrong("a content is longer than it says")
	}
	l.left -= int64(n)
	switch {
	case err == io.EOF && l.left > 0:
		return n, wrong("a content is shorter than it says")
	case err == io.EOF && (len(l.digits.rest) > 0 || !l.digits.ended):
		if line, lerr := l.digits.r.line(); lerr != nil || len(line) > 0 || len(l.digits.rest) > 0 {
			return n, errors.Join(lerr, wrong("more follows a content"))
		}
		l.digits.ended = true
	case err != nil && err != io.EOF:
		return n, packed(err)
	}
	return n, err
}

func packed(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || strings.HasPrefix(err.Error(), "flate: ") ||
		strings.HasPrefix(err.Error(), "zlib: ") {
		return wrong("a content that cannot be unpacked: %v", err)
	}
	return err
}

// digitReader decodes the lines of a literal up to the empty one. It is an io.ByteReader, so that nothing reads
// further than it needs.
type digitReader struct {
	r     *Reader
	rest  []byte
	room  [literalLine]byte
	ended bool
}

func (d *digitReader) fill() error {
	for len(d.rest) == 0 {
		if d.ended {
			return io.EOF
		}
		line, err := d.r.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			d.ended = true
			continue
		}
		n := 0
		switch c := line[0]; {
		case c >= 'A' && c <= 'Z':
			n = int(c-'A') + 1
		case c >= 'a' && c <= 'z':
			n = int(c-'a') + 27
		}
		if digits := line[1:]; n == 0 || len(digits) != (n+3)/4*5 {
			return wrong("a line of %d digits", len(digits))
		}
		at := 0
		for digits := string(line[1:]); digits != ""; digits = digits[5:] {
			group, ok := decode85(digits[:5])
			if !ok {
				return wrong("digits that are none")
			}
			at += copy(d.room[at:], group[:])
		}
		d.rest = d.room[:n]
	}
	return nil
}

func (d *digitReader) Read(b []byte) (int, error) {
	if err := d.fill(); err != nil {
		return 0, err
	}
	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *digitReader) ReadByte() (byte, error) {
	if err := d.fill(); err != nil {
		return 0, err
	}
	c := d.rest[0]
	d.rest = d.rest[1:]
	return c, nil
}
