package schema

import (
	"bytes"
	"strconv"
)

// Classes of values in a line's shape.
const (
	classString  = 's' // not empty
	classNoText  = 'S'
	classZero    = '0'
	classNatural = 'u' // a whole number from 1, of 64 bits
	classMinus   = 'i' // the same below zero
	classPart    = 'd' // between 0 and 1, at most 15 digits: so far a float64 is exact
	classMixed   = 'D' // the same above 1 and not whole
	classBelow   = 'm' // the same below zero and not whole
	classTrue    = 't'
	classFalse   = 'f'
	classNull    = 'n'
	classEmpty   = 'e' // []
	classStrings = 'a' // an array of one or more strings
	classObject  = 'O'
	classAny     = 'v' // whatever it is, no keyword looks at it
	classOther   = 'o' // the raw value follows in the shape
)

// scan reduces a compact line to its shape in c.sig: each key's index and its
// value's class, or the whole value where the schema looks into it. It accepts
// a part of JSON only: an object without spaces, its keys known and not
// repeated, its values plain ones (see scanValue). All else is not ok, which says
// nothing about the line.
func (c *LineChecker) scan(line []byte) (info LineInfo, ok bool) {
	p := c.cur
	sig := c.sig[:0]
	defer func() { c.sig = sig }()
	if len(line) < 2 || line[0] != '{' || p.keys == nil {
		return info, false
	}
	var seen [maxKeys / 64]uint64
	have := 0
	for i, pos := 1, 0; ; pos++ {
		if i >= len(line) || line[i] != '"' {
			return info, false
		}
		end := scanString(line, i)
		if end < 0 || end >= len(line) || line[end] != ':' {
			return info, false
		}
		k := p.index(line[i+1:end-1], pos)
		if k < 0 || seen[k>>6]&(1<<(k&63)) != 0 {
			return info, false
		}
		seen[k>>6] |= 1 << (k & 63)
		start := end + 1
		end, class := scanValue(line, start, 0)
		if end < 0 || end >= len(line) {
			return info, false
		}
		raw := line[start:end]
		switch p.names[k] {
		case "schema":
			if class != classString || string(raw[1:len(raw)-1]) != p.id {
				return info, false
			}
			info.Schema = p.id
			have |= 1
		case "run_id":
			if class != classString {
				return info, false
			}
			if id := raw[1 : len(raw)-1]; string(id) != c.run {
				c.run = string(id)
			}
			info.RunID = c.run
			have |= 2
		case "seq":
			seq, err := strconv.ParseUint(string(raw), 10, 64)
			if class != classNatural && class != classZero || err != nil {
				return info, false
			}
			info.Seq = seq
			have |= 4
		case "type":
			if class == classString {
				info.Type = raw[1 : len(raw)-1]
			}
		}
		if sig = p.rules[k].appendShape(append(sig, byte(k)), class, raw); len(sig) > maxShape {
			return info, false
		}
		switch line[end] {
		case ',':
			i = end + 1
		case '}':
			return info, have == 7 && end == len(line)-1
		default:
			return info, false
		}
	}
}

// maxDepth is how deep scanValue goes.
const maxDepth = 16

// scanValue finds the end of the value that starts at i, and its class. The end
// is -1 for what it does not cover: exponents, unusual escapes, objects with
// many keys, and what is nested deeply.
func scanValue(b []byte, i, depth int) (end int, class byte) {
	if i >= len(b) {
		return -1, 0
	}
	switch b[i] {
	case '"':
		if end = scanString(b, i); end == i+2 {
			return end, classNoText
		}
		return end, classString
	case 't':
		return scanWord(b, i, "true"), classTrue
	case 'f':
		return scanWord(b, i, "false"), classFalse
	case 'n':
		return scanWord(b, i, "null"), classNull
	case '[':
		return scanArray(b, i, depth+1)
	case '{':
		return scanObject(b, i, depth+1), classObject
	}
	return scanNumber(b, i)
}

func scanWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func scanNumber(b []byte, i int) (end int, class byte) {
	class = classNatural
	if b[i] == '-' {
		class = classMinus
		i++
	}
	start := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	n := i - start
	if n == 0 || b[start] == '0' && n > 1 {
		return -1, 0
	}
	zero := b[start] == '0'
	if i < len(b) && b[i] == '.' {
		return scanFraction(b, i+1, n, zero, class == classMinus)
	}
	if zero {
		if class == classMinus {
			return -1, 0
		}
		class = classZero
	}
	most := "18446744073709551615"
	if class == classMinus {
		most = "9223372036854775808"
	}
	if n > len(most) || n == len(most) && string(b[start:i]) > most {
		return -1, 0
	}
	// An exponent is refused by the caller, who expects , or an end.
	return i, class
}

// scanFraction finds the end of a fraction that makes a number no whole one.
func scanFraction(b []byte, i, digits int, zero, minus bool) (end int, class byte) {
	start := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if n := i - start; n == 0 || digits+n > 15 || b[i-1] == '0' {
		return -1, 0
	}
	switch {
	case minus:
		return i, classBelow
	case zero:
		return i, classPart
	}
	return i, classMixed
}

func scanArray(b []byte, i, depth int) (end int, class byte) {
	i++
	if i < len(b) && b[i] == ']' {
		return i + 1, classEmpty
	}
	class = classStrings
	for {
		if depth > maxDepth {
			return -1, 0
		}
		end, item := scanValue(b, i, depth)
		if end < 0 || end >= len(b) {
			return -1, 0
		}
		if item != classString && item != classNoText {
			class = classOther
		}
		switch b[end] {
		case ',':
			i = end + 1
		case ']':
			return end + 1, class
		default:
			return -1, 0
		}
	}
}

// scanObject finds the end of the object that starts at i, which has at most 32
// keys, none twice and none with an escape.
func scanObject(b []byte, i, depth int) (end int) {
	var keys [32][]byte
	i++
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for n := 0; ; n++ {
		if n == len(keys) || depth > maxDepth || i >= len(b) || b[i] != '"' {
			return -1
		}
		end := scanString(b, i)
		if end < 0 || end >= len(b) || b[end] != ':' {
			return -1
		}
		key := b[i:end]
		if bytes.IndexByte(key, '\\') >= 0 {
			return -1
		}
		for _, k := range keys[:n] {
			if bytes.Equal(k, key) {
				return -1
			}
		}
		keys[n] = key
		end, _ = scanValue(b, end+1, depth)
		if end < 0 || end >= len(b) {
			return -1
		}
		switch b[end] {
		case ',':
			i = end + 1
		case '}':
			return end + 1
		default:
			return -1
		}
	}
}
