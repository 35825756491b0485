package story

import "strings"

// Plain is what a terminal would show of text, roughly: without the sequences
// that move, paint or name things (ECMA-48: CSI, OSC and the short escapes).
func Plain(s string) string {
	if strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			i++
			continue
		}
		i += escape(s[i:])
	}
	return b.String()
}

// escape is the length of the sequence that s begins with.
func escape(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']', 'P', '_', '^':
		if i := strings.IndexAny(s[2:], "\a\x1b"); i >= 0 {
			if s[2+i] == 0x1b && 3+i < len(s) {
				return i + 4
			}
			return i + 3
		}
		return len(s)
	case '(', ')':
		return min(3, len(s))
	}
	return 2
}
