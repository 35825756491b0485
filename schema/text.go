package schema

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Readable returns a text from outside as UTF-8: each byte that is not UTF-8 is written as \xHH, as in caf\xe9. Every
// artifact, page and message writes names so. A text that is UTF-8 stays as it is, also if it contains such an escape:
// where that matters, a member beside the text has the exact bytes.
func Readable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string(appendReadable(make([]byte, 0, len(s)+8), s))
}

func appendReadable(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = appendEscape(dst, s[i])
		} else {
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return dst
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'x', hex[c>>4], hex[c&15])
}

// OneLine returns a text from outside as one line that is safe for a terminal: as [Readable], and with what is not
// printable escaped as Go does: control characters such as newlines, escape sequences, bidirectional overrides.
func OneLine(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return escapeLine(s)
		}
	}
	return s
}

func escapeLine(s string) string {
	var b strings.Builder
	for _, r := range Readable(s) {
		if r == ' ' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// Lines is like [OneLine] for a text of several lines: newlines and tabs stay.
func Lines(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexAny(s, "\n\t")
		if i < 0 {
			return b.String() + OneLine(s)
		}
		b.WriteString(OneLine(s[:i]) + s[i:i+1])
		s = s[i+1:]
	}
}

// Below reports whether path is one of dirs or inside one, by their text alone: all are clean, and all absolute or all
// relative to the same place.
func Below(path string, dirs ...string) bool {
	for _, dir := range dirs {
		switch {
		case path == dir, dir == "/":
			return true
		case dir == ".":
			if path != ".." && !strings.HasPrefix(path, "../") {
				return true
			}
		case strings.HasPrefix(path, dir) && path[len(dir)] == '/':
			return true
		}
	}
	return false
}

// ReadableJSON makes JSON encoders write strings as [Readable] does. Without it they replace bytes that are not UTF-8,
// or fail.
var ReadableJSON = json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, s string) error {
	if utf8.ValidString(s) {
		return errors.ErrUnsupported // encode it as usual
	}
	return e.WriteToken(jsontext.String(Readable(s)))
}))
