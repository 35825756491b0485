package schema

import (
	"unicode/utf8"
)

// stops marks the bytes that end the plain run of a string.
var stops = func() (t [256]bool) {
	for c := range t {
		t[c] = c < 0x20 || c == '"' || c == '\\' || c >= 0x80
	}
	return t
}()

// scanString finds the end of the string that starts at i, past its closing
// quote, or -1: valid UTF-8, no control characters, and of the escapes only
// those of one letter and \u00XX.
func scanString(b []byte, i int) int {
	i++
	start, wide := i, false
	for i < len(b) {
		c := b[i]
		if !stops[c] {
			i++
			continue
		}
		switch {
		case c == '"':
			if wide && !utf8.Valid(b[start:i]) {
				return -1
			}
			return i + 1
		case c >= 0x80:
			wide = true
			i++
		case c == '\\':
			if i+1 >= len(b) {
				return -1
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) || b[i+2] != '0' || b[i+3] != '0' || !isHex(b[i+4]) || !isHex(b[i+5]) {
					return -1
				}
				i += 6
			default:
				return -1
			}
		default:
			return -1
		}
	}
	return -1
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
