package render

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// screen passes output on to a terminal without control sequences that do more than draw. Sequences are those of
// ECMA-48 and xterm (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html).
type screen struct {
	w    io.Writer
	part string // an unfinished sequence
	last byte   // the last byte that was written
}

// maxPart limits an unfinished sequence, in bytes. Longer ones are dropped.
const maxPart = 4096

// restore resets what a recording may have changed: colours, margins, character sets, cursor keys, wrapping, the
// cursor's visibility, the alternate screen.
const restore = "\x1b[0m\x1b[r\x1b(B\x0f\x1b[?1l\x1b[?6l\x1b[?7h\x1b[4l\x1b[?25h\x1b[?1049l"

func (s *screen) write(text string) error {
	text, s.part = s.part+text, ""
	var out strings.Builder
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == 0x1b:
			n = sequence(text)
			if n == 0 { // unfinished
				if len(text) <= maxPart {
					s.part = text
					text = ""
				} else {
					text = text[1:]
				}
				continue
			}
			if draws(text[:n]) {
				out.WriteString(text[:n])
			}
		case r >= 0x20 && r != 0x7f && !(r >= 0x80 && r < 0xa0) || strings.ContainsRune("\a\b\t\n\v\f\r\x0e\x0f", r):
			out.WriteString(text[:n])
		}
		text = text[n:]
	}
	if n := out.Len(); n > 0 {
		s.last = out.String()[n-1]
	}
	_, err := io.WriteString(s.w, out.String())
	return err
}

// end restores the terminal, with the cursor at the beginning of a line.
func (s *screen) end() error {
	end := restore
	if s.last != 0 && s.last != '\n' {
		end += "\r\n"
	}
	_, err := io.WriteString(s.w, end)
	return err
}

// sequence returns the length of the escape sequence at the start of text; 0 if it is unfinished.
func sequence(text string) int {
	if len(text) < 2 {
		return 0
	}
	switch c := text[1]; {
	case c == '[':
		for i := 2; i < len(text); i++ {
			switch {
			case text[i] == 0x1b: // another sequence begins
				return i
			case text[i] < 0x20 || text[i] > 0x3f:
				return i + 1
			}
		}
		return 0
	case strings.IndexByte("]P_^X", c) >= 0: // a string, until BEL or ST
		for i := 2; i < len(text); i++ {
			switch {
			case text[i] == '\a':
				return i + 1
			case text[i] == 0x1b && i+1 < len(text):
				if text[i+1] == '\\' {
					return i + 2
				}
				return i // another sequence begins
			}
		}
		return 0
	case c >= 0x20 && c <= 0x2f:
		if len(text) < 3 {
			return 0
		}
		return 3
	case c == 0x1b:
		return 1
	}
	return 2
}

// modes are the terminal modes that only change how text is drawn: cursor keys, origin, wrapping, the cursor, the
// alternate screen, and insertion ("4").
var modes = []string{"?1", "?6", "?7", "?12", "?25", "?47", "?1047", "?1048", "?1049", "?2026", "4"}

// draws reports whether a sequence only draws.
func draws(s string) bool {
	if len(s) < 2 {
		return false
	}
	last := s[len(s)-1]
	switch s[1] {
	case '[':
		params := s[2 : len(s)-1]
		switch {
		case strings.IndexByte("hl", last) >= 0:
			return slices.Contains(modes, params)
		case strings.Trim(params, "0123456789;:") != "":
			return params == "?" && last == 'J' || last == 'q' && strings.HasSuffix(params, " ") &&
				strings.Trim(params, "0123456789 ") == ""
		}
		return strings.IndexByte("@ABCDEFGHIJKLMPSTXZ`abdefgmrsu", last) >= 0
	case '(', ')':
		return strings.IndexByte("0AB", last) >= 0
	}
	return len(s) == 2 && strings.IndexByte("78DEHM=>", last) >= 0
}
