package gitpatch

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/zlib"
)

// The modes that git knows.
const (
	File       = 0o100644
	Executable = 0o100755
	Link       = 0o120000
)

// State is one side of a section.
type State struct {
	Mode uint32 // File, Executable or Link
	ID   string // of the content: 40 hex digits
}

// noID stands for the content of what is not there.
const noID = "0000000000000000000000000000000000000000"

// ID is the id that git has for a content, in 40 hex digits.
func ID(content []byte) string {
	h := NewID(int64(len(content)))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

// NewID hashes a content of that many bytes to the id that git has for it.
func NewID(size int64) hash.Hash {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	return h
}

// Writer writes the sections of a patch. It is not safe for concurrent use.
type Writer struct {
	w   io.Writer
	buf bytes.Buffer
	z   *zlib.Writer
}

// NewWriter writes a patch to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Create adds a path with its content.
func (w *Writer) Create(name string, to State, content []byte) error {
	w.begin(name)
	fmt.Fprintf(&w.buf, "new file mode %06o\nindex %s..%s\n", to.Mode, noID, to.ID)
	switch {
	case len(content) == 0:
	case isText(content):
		w.text(name, content)
	default:
		w.buf.WriteString(binaryHead)
		w.literal(content)
		w.literal(nil) // for the way back
	}
	return w.end()
}

// Modify changes the content of a path, and its mode if from has another. The type of the file stays.
func (w *Writer) Modify(name string, from, to State, content []byte) error {
	w.begin(name)
	if from.Mode != to.Mode {
		fmt.Fprintf(&w.buf, "old mode %06o\nnew mode %06o\n", from.Mode, to.Mode)
	}
	if from.ID != to.ID {
		fmt.Fprintf(&w.buf, "index %s..%s", from.ID, to.ID)
		if from.Mode == to.Mode {
			fmt.Fprintf(&w.buf, " %06o", to.Mode)
		}
		w.buf.WriteString("\n" + binaryHead)
		w.literal(content)
	}
	return w.end()
}

// Delete removes a path.
func (w *Writer) Delete(name string, from State) error {
	w.begin(name)
	fmt.Fprintf(&w.buf, "deleted file mode %06o\nindex %s..%s\n", from.Mode, from.ID, noID)
	if from.ID != ID(nil) {
		w.buf.WriteString(binaryHead)
		w.literal(nil)
	}
	return w.end()
}

func (w *Writer) begin(name string) {
	w.buf.Reset()
	fmt.Fprintf(&w.buf, "diff --git %s %s\n", quote("a/", name), quote("b/", name))
}

func (w *Writer) end() error {
	_, err := w.w.Write(w.buf.Bytes())
	if w.buf.Cap() > 1<<20 {
		w.buf = bytes.Buffer{}
	}
	return err
}

// maxTextLine is the longest line that is written as text, in bytes.
const maxTextLine = 4 << 10

// isText reports whether a content can be shown as lines.
func isText(content []byte) bool {
	for rest := content; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		if len(line) > maxTextLine {
			return false
		}
		rest = after
	}
	if !utf8.Valid(content) {
		return false
	}
	for _, c := range content {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// unended says that the last line of a text has no newline.
const unended = "\\ No newline at end of file\n"

func (w *Writer) text(name string, content []byte) {
	lines := bytes.Count(content, []byte{'\n'})
	ended := content[len(content)-1] == '\n'
	if !ended {
		lines++
	}
	fmt.Fprintf(&w.buf, "--- /dev/null\n+++ %s\n@@ -0,0 +1,%d @@\n", quote("b/", name), lines)
	for line := range bytes.Lines(content) {
		w.buf.WriteByte('+')
		w.buf.Write(line)
	}
	if !ended {
		w.buf.WriteString("\n" + unended)
	}
}

// binaryHead begins a content in the binary form. The one for the way back, which git can have behind it, is there
// where it is empty: git refuses to undo the others.
const binaryHead = "GIT binary patch\n"

// literalLine is how many bytes a line of a literal holds.
const literalLine = 52

func (w *Writer) literal(content []byte) {
	fmt.Fprintf(&w.buf, "literal %d\n", len(content))
	var packed bytes.Buffer
	if w.z == nil {
		w.z = zlib.NewWriter(&packed)
	} else {
		w.z.Reset(&packed)
	}
	_, _ = w.z.Write(content) // to memory: it cannot fail
	_ = w.z.Close()
	for rest := packed.Bytes(); len(rest) > 0; {
		line := rest[:min(len(rest), literalLine)]
		rest = rest[len(line):]
		if n := len(line); n <= 26 {
			w.buf.WriteByte('A' + byte(n) - 1)
		} else {
			w.buf.WriteByte('a' + byte(n) - 27)
		}
		for len(line) > 0 {
			var group [4]byte
			line = line[copy(group[:], line):]
			w.buf.WriteString(encode85(group))
		}
		w.buf.WriteByte('\n')
	}
	w.buf.WriteByte('\n')
}

// digits85 are the digits of git's base 85.
const digits85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

func encode85(group [4]byte) string {
	n := uint32(group[0])<<24 | uint32(group[1])<<16 | uint32(group[2])<<8 | uint32(group[3])
	var out [5]byte
	for i := 4; i >= 0; i-- {
		out[i] = digits85[n%85]
		n /= 85
	}
	return string(out[:])
}

func decode85(digits string) (group [4]byte, ok bool) {
	n := uint64(0)
	for i := range len(digits) {
		d := strings.IndexByte(digits85, digits[i])
		if d < 0 {
			return group, false
		}
		n = n*85 + uint64(d)
	}
	return [4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, n < 1<<32
}
