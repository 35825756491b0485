package schema

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// errNotJSON says that a text is not JSON; [checkSyntax] then finds where and why.
var errNotJSON = errors.New("not JSON")

// scanner reads a JSON text from the front without copying it. It accepts only JSON in UTF-8. The caller has to refuse
// repeated keys.
type scanner struct {
	b []byte
	i int
}

// space moves to the next byte that is not white space and returns it; it returns 0 at the end.
func (s *scanner) space() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) byte(c byte) bool {
	if s.space() != c {
		return false
	}
	s.i++
	return true
}

func (s *scanner) word(w string) bool {
	s.space()
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		return false
	}
	s.i += len(w)
	return true
}

// end fails if anything but white space follows.
func (s *scanner) end() error {
	if s.space(); s.i < len(s.b) {
		return errNotJSON
	}
	return nil
}

// object reads an object. It calls value at each value, which value must read. key may be a part of the text.
func (s *scanner) object(value func(key []byte) error) error {
	if !s.byte('{') {
		return errors.New("is not an object")
	}
	if s.byte('}') {
		return nil
	}
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		if !s.byte(':') {
			return errNotJSON
		}
		if err := value(key); err != nil {
			return err
		}
		if s.byte('}') {
			return nil
		}
		if !s.byte(',') {
			return errNotJSON
		}
	}
}

// array reads an array. It calls value at each value, which value must read.
func (s *scanner) array(value func() error) error {
	if !s.byte('[') {
		return errors.New("is not an array")
	}
	if s.byte(']') {
		return nil
	}
	for {
		if err := value(); err != nil {
			return err
		}
		if s.byte(']') {
			return nil
		}
		if !s.byte(',') {
			return errNotJSON
		}
	}
}

// str reads a string. The result may be a part of the text.
func (s *scanner) str() ([]byte, error) {
	if s.space() != '"' {
		return nil, errors.New("is not a string")
	}
	start := s.i + 1
	for i := start; i < len(s.b); i++ {
		if c := s.b[i]; c == '"' {
			s.i = i + 1
			return s.b[start:i], nil
		} else if !literal[c] {
			return s.hardString(start, i)
		}
	}
	return nil, errNotJSON
}

// hardString continues str at the first byte that is not literal.
func (s *scanner) hardString(start, i int) ([]byte, error) {
	escaped := false
	for ; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			text := s.b[start:i]
			s.i = i + 1
			if !escaped {
				if !utf8.Valid(text) {
					return nil, errNotJSON
				}
				return text, nil
			}
			text, err := jsontext.AppendUnquote(nil, s.b[start-1:s.i])
			if err != nil {
				return nil, errNotJSON
			}
			return text, nil
		case c == '\\':
			escaped = true
			i++
		case c < 0x20:
			return nil, errNotJSON
		}
	}
	return nil, errNotJSON
}

// number reads a whole number in plain digits, with an optional minus sign, and refuses any other. The result is a part
// of the text.
func (s *scanner) number() ([]byte, error) {
	s.space()
	start := s.i
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	digits := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	n := s.b[digits:s.i]
	if len(n) == 0 || n[0] == '0' && len(n) > 1 || s.i < len(s.b) && bytes.IndexByte([]byte(".eE"), s.b[s.i]) >= 0 {
		return nil, errors.New("is not a whole number in plain digits")
	}
	return s.b[start:s.i], nil
}

// errRange is wrapped by the error for a whole number that does not fit its field. The JSON Schemas do not bound it.
var errRange = errors.New("the number is too large")

// signed parses plain digits, with a minus sign if the number is below 0.
func signed(n []byte) (int64, error) {
	digits, minus := bytes.CutPrefix(n, []byte{'-'})
	v, ok := natural(digits)
	switch {
	case ok && !minus && v <= math.MaxInt64:
		return int64(v), nil
	case ok && minus && v > 0 && v <= 1<<63:
		return -int64(v), nil
	case ok && !minus:
		return 0, fmt.Errorf("%w: %s, at most %d", errRange, n, int64(math.MaxInt64))
	}
	return 0, fmt.Errorf("%.40s is not a whole number in plain digits of 64 bits", n)
}

// natural parses plain digits. ok is false for anything else, and if the number exceeds 64 bits.
func natural(digits []byte) (v uint64, ok bool) {
	for _, c := range digits {
		n := uint64(c - '0')
		if n > 9 || v > (math.MaxUint64-n)/10 {
			return 0, false
		}
		v = 10*v + n
	}
	return v, len(digits) > 0
}

const hexDigits = "0123456789abcdef"

// literal marks the bytes that need no escape in a JSON string.
var literal = [256]bool{
	' ': true, '!': true, '#': true, '$': true, '%': true, '&': true, '\'': true, '(': true, ')': true, '*': true,
	'+': true, ',': true, '-': true, '.': true, '/': true, ':': true, ';': true, '<': true, '=': true, '>': true,
	'?': true, '@': true, '[': true, ']': true, '^': true, '_': true, '`': true, '{': true, '|': true, '}': true,
	'~': true,
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true,
	'A': true, 'B': true, 'C': true, 'D': true, 'E': true, 'F': true, 'G': true, 'H': true, 'I': true, 'J': true,
	'K': true, 'L': true, 'M': true, 'N': true, 'O': true, 'P': true, 'Q': true, 'R': true, 'S': true, 'T': true,
	'U': true, 'V': true, 'W': true, 'X': true, 'Y': true, 'Z': true,
	'a': true, 'b': true, 'c': true, 'd': true, 'e': true, 'f': true, 'g': true, 'h': true, 'i': true, 'j': true,
	'k': true, 'l': true, 'm': true, 'n': true, 'o': true, 'p': true, 'q': true, 'r': true, 's': true, 't': true,
	'u': true, 'v': true, 'w': true, 'x': true, 'y': true, 'z': true,
}

// appendString appends s as a JSON string. If s is not UTF-8, bad is true, and invalid bytes are written as [Readable]
// does.
func appendString(dst []byte, s string) (_ []byte, bad bool) {
	for i := 0; i < len(s); i++ {
		if !literal[s[i]] {
			return appendEscaped(dst, s, i)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"'), false
}

// appendEscaped is appendString for a string whose first byte that is not literal is at i. It also escapes DEL and
// the C1 controls, because a line may be printed to a terminal.
func appendEscaped(dst []byte, s string, i int) (_ []byte, bad bool) {
	dst = append(dst, '"')
	dst = append(dst, s[:i]...)
	for i < len(s) {
		c := s[i]
		switch {
		case literal[c]:
			dst = append(dst, c)
			i++
			continue
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
			continue
		case c < utf8.RuneSelf:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			bad = true
			dst = appendEscape(append(dst, '\\'), c) // JSON escapes the backslash
		case r < 0xa0:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"'), bad
}
