package redact

import (
	"bytes"
	"sort"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unfolded is a text without what its writer was free to put into it: line breaks inside of long words, as in base64
// and hex, and the escapes \uXXXX and \/ of JSON. It knows where each of its parts stands in the text.
type unfolded struct {
	text  []byte
	parts []part
	rest  int // where the text goes on behind its parts: an escape that is cut
}

// part says that text[at:], up to the next part, stands for what is between from and to.
type part struct {
	at, from, to int
	escape       bool // of one character, or what was left out
}

const (
	// maxFold is how many times as long as the text's a form can be that is folded, of which all is an escape.
	maxFold = 8
	// longWord is how many bytes of a word stand before a line break that may divide it.
	longWord = 16
)

// wordByte has the bytes of base64 and hex.
var wordByte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-") {
		t[c] = true
	}
	return t
}()

// unfold unfolds b; nil means that b has no folds. Of what is between two folds it keeps reach bytes at each, which is
// all that can be in one form with a fold. more says that b goes on: a break at its end is then taken for one inside of
// a word, and an escape that is not complete is left out.
func unfold(b []byte, reach int, more bool) *unfolded {
	var u *unfolded
	from, line, slash := 0, indexFrom(b, 0, '\n'), indexFrom(b, 0, '\\')
	for i := min(line, slash); i < len(b); i = min(line, slash) {
		f, ok := foldAt(b, i, more)
		if ok {
			if u == nil {
				u = &unfolded{}
				from = max(0, f.start-reach)
			}
			u.add(b, from, f.start, reach)
			if f.char != nil {
				u.parts = append(u.parts, part{len(u.text), f.start, f.end, true})
				u.text = append(u.text, f.char...)
			}
			if from = f.end; f.cut {
				u.rest = f.start
				return u
			}
		}
		if line < f.end {
			line = indexFrom(b, f.end, '\n')
		}
		if slash < f.end {
			slash = indexFrom(b, f.end, '\\')
		}
	}
	end := len(b)
	if more && bytes.HasSuffix(b, []byte{'\r'}) { // a line feed may follow
		end--
	}
	if u == nil && end == len(b) {
		return nil
	} else if u == nil {
		u = &unfolded{}
	}
	u.add(b, from, min(end, from+reach), reach)
	u.rest = end
	return u
}

func (u *unfolded) add(b []byte, from, to, reach int) {
	if to-from > 2*reach {
		u.add(b, from, from+reach, reach)
		u.parts = append(u.parts, part{len(u.text), from + reach, to - reach, true})
		u.text = append(u.text, 0xff) // not in UTF-8, so that nothing is found across it
		from = to - reach
	}
	if from < to {
		u.parts = append(u.parts, part{len(u.text), from, to, false})
		u.text = append(u.text, b[from:to]...)
	}
}

// indexFrom is where c stands from an index on; the end of b where it does not.
func indexFrom(b []byte, from int, c byte) int {
	if i := bytes.IndexByte(b[from:], c); i >= 0 {
		return from + i
	}
	return len(b)
}

// fold is what unfold takes out of a text, or replaces by a character.
type fold struct {
	start, end int
	char       []byte // nil for a line break
	cut        bool   // an escape that the text's end cuts
}

// foldAt looks at the line break or backslash at i. Where ok is false, there is no fold before the returned end.
func foldAt(b []byte, i int, more bool) (f fold, ok bool) {
	f = fold{start: i, end: i + 1}
	if b[i] == '\n' {
		if i > 0 && b[i-1] == '\r' {
			f.start--
		}
		return f, divides(b, f, more)
	}
	c := 0
	if f.end, c = escaped(b, i); c == 'r' { // CR LF
		if f.end, c = escaped(b, f.end); c != 'n' && c >= 0 {
			return f, false
		}
	}
	switch {
	case c < 0, c == 'u' && f.end+4 > len(b):
		f.end, f.cut = len(b), true
		return f, more
	case c == 'n':
		return f, divides(b, f, more)
	case c == '/':
		f.char = []byte("/")
		return f, true
	case c == 'u':
		unit, err := strconv.ParseUint(string(b[f.end:f.end+4]), 16, 16)
		if err != nil {
			return f, false
		}
		f.end += 4
		char := rune(unit)
		if utf16.IsSurrogate(char) {
			end, c := escaped(b, f.end)
			if c < 0 && more || c == 'u' && end+4 > len(b) && more {
				f.end, f.cut = len(b), true
				return f, true
			}
			if c != 'u' || end+4 > len(b) {
				return f, false
			}
			low, err := strconv.ParseUint(string(b[end:end+4]), 16, 16)
			if char = utf16.DecodeRune(char, rune(low)); err != nil || char == utf8.RuneError {
				return f, false
			}
			f.end = end + 4
		}
		f.char = []byte(escape(string(char))) // as a form in JSON has it
		return f, true
	}
	return f, false
}

// escaped returns what follows the backslashes at i, as text in JSON in JSON has several, and where that ends: 0 where
// there are none, -1 where b ends before.
func escaped(b []byte, i int) (end, c int) {
	k := i
	for k < len(b) && b[k] == '\\' {
		k++
	}
	switch {
	case k == len(b):
		return k, -1
	case k == i:
		return i, 0
	}
	return k + 1, int(b[k])
}

// divides reports whether a line break may divide a word: a long one is before it, or what there is of one, and a
// letter of one behind it.
func divides(b []byte, f fold, more bool) bool {
	if f.end < len(b) && !wordByte[b[f.end]] || f.end == len(b) && !more {
		return false
	}
	for k := f.start - 1; k >= max(0, f.start-longWord); k-- { // lines end in short words more often
		if !wordByte[b[k]] {
			return false
		}
	}
	return true
}

// part is the part that has the byte at i.
func (u *unfolded) part(i int) part {
	return u.parts[sort.Search(len(u.parts), func(k int) bool { return u.parts[k].at > i })-1]
}

// start is where the byte at i of the unfolded text begins in the text.
func (u *unfolded) start(i int) int {
	p := u.part(i)
	if p.escape {
		return p.from
	}
	return p.from + i - p.at
}

// end is where the byte before i of the unfolded text ends in the text.
func (u *unfolded) end(i int) int {
	p := u.part(i - 1)
	if p.escape {
		return p.to
	}
	return p.from + i - p.at
}
