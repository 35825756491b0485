package schema

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// literal marks the bytes that stand for themselves in a JSON string.
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

// appendString writes s as a JSON string and reports whether it was not UTF-8;
// each wrong byte is then written as U+FFFD.
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

// appendEscaped is appendString from the first byte that needs attention. DEL
// and the C1 controls are escaped too: a line may be printed to a terminal.
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
			dst = append(dst, "\uFFFD"...)
		case r < 0xa0:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return append(dst, '"'), bad
}
