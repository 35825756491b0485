package schema

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Document encodes a whole-file artifact in its canonical form: two-space
// indentation, keys in the order of the type, map keys sorted, no HTML
// escapes, strings as [Readable] writes them, and one final newline. Equal values
// give equal bytes.
func Document(v any) ([]byte, error) {
	return encode(v, "  ")
}

// Line encodes one layer line: compact, and ending in a newline.
func Line(v any) ([]byte, error) {
	return encode(v, "")
}

// PrintDocument writes v to w as [Document] encodes it, with what drives a terminal
// escaped as [AppendForTerminal] does. It writes while it encodes.
func PrintDocument(w io.Writer, v any) error { return encodeTo(forTerminal{w}, v, "  ") }

// WriteDocument writes v to w as [Document] encodes it, while it encodes.
func WriteDocument(w io.Writer, v any) error { return encodeTo(w, v, "  ") }

func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	if err := encodeTo(&b, v, indent); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func encodeTo(w io.Writer, v any, indent string) error {
	format := json.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), ReadableJSON)
	if indent != "" {
		format = json.JoinOptions(format, jsontext.WithIndent(indent))
	}
	if err := json.MarshalWrite(w, v, format); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// DrivesTerminal reports whether a terminal may obey a character or show a text
// with it in another order: control characters (C0, DEL, C1), line and paragraph
// separators, and the marks of bidirectional text (Unicode's UAX #9).
func DrivesTerminal(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r == 0x61c, r == 0x200e, r == 0x200f, r == 0x2028, r == 0x2029:
		return true
	}
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// AppendForTerminal appends a JSON text with every character that drives a
// terminal, but for tab and newline, escaped as \uXXXX: the same JSON, since outside
// of its strings JSON has none of them.
func AppendForTerminal(dst, text []byte) []byte {
	start := 0
	for i := 0; i < len(text); {
		if c := text[i]; c < 0x7f {
			i++ // JSON has C0 controls between its tokens alone
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if DrivesTerminal(r) {
			dst = append(dst, text[start:i]...)
			dst = fmt.Appendf(dst, `\u%04x`, r)
			start = i + n
		}
		i += n
	}
	return append(dst, text[start:]...)
}

// forTerminal escapes the text of each Write, which must not end within a character.
type forTerminal struct{ w io.Writer }

func (f forTerminal) Write(text []byte) (int, error) {
	var part []byte
	for rest := text; len(rest) > 0; {
		n := min(len(rest), 64<<10)
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n++
		}
		part = AppendForTerminal(part[:0], rest[:n])
		if _, err := f.w.Write(part); err != nil {
			return len(text) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(text), nil
}
