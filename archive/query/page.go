package query

import (
	"bufio"
	"bytes"
	"strings"
	"unicode/utf8"
)

// Page is how a page of text looks. The zero value is a plain page of lines of any
// length with DefaultLimit entries in each list.
type Page struct {
	// Limit is how many entries of a list are shown; 0 means DefaultLimit.
	Limit int
	// Width is where longer lines are broken, in columns; 0 breaks none.
	Width int
	// Colour sets headings in bold type and what is wrong in red.
	Colour bool
}

// DefaultLimit is how many entries of each list a page shows.
const DefaultLimit = 20

// page breaks and colours the lines that are written to it.
type page struct {
	Page
	w    *bufio.Writer
	part []byte // of a line
}

func (p *page) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		p.part = append(p.part, line...)
		if !whole {
			return n, nil
		}
		p.line(string(p.part))
		p.part, b = p.part[:0], rest
	}
}

func (p *page) close() error {
	if len(p.part) > 0 {
		p.line(string(p.part))
	}
	return p.w.Flush()
}

const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	reset = "\x1b[0m"
)

func (p *page) line(s string) {
	style := ""
	if p.Colour {
		style = styleOf(s)
	}
	for i, part := range broken(s, p.Width) {
		if i > 0 {
			p.w.WriteByte('\n')
		}
		if style == bold && i == 0 && strings.HasPrefix(s, part) && len(part) > keyWidth && isRow(part) {
			p.w.WriteString(bold + part[:keyWidth] + reset + part[keyWidth:]) // the key alone
			continue
		}
		if style != "" {
			part = style + part + reset
		}
		p.w.WriteString(part)
	}
	p.w.WriteByte('\n')
}

// keyWidth is where the text of a row of the head begins.
const keyWidth = 11

// isRow tells a row of the head from a heading.
func isRow(s string) bool { return s[keyWidth-1] == ' ' && !strings.HasSuffix(s, ")") }

// wrong begin lines of a page that say that something is wrong.
var wrong = []string{
	"contract   failed", "           failed ", "           not run ", "protected  ", "    ! ", "kernel     absent", "kernel     partial", "denied (", "files read that may hold secrets (", "outcome    timed out", "outcome    killed",
}

func styleOf(s string) string {
	for _, start := range wrong {
		if strings.HasPrefix(s, start) {
			return red
		}
	}
	if s != "" && s[0] != ' ' {
		return bold
	}
	return ""
}

// broken breaks a line at spaces, or where there are none anywhere, into lines of at
// most width characters. All but the first are indented more than it is.
func broken(s string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return []string{s}
	}
	indent := len(s) - len(strings.TrimLeft(s, " ")) + 4
	if s[0] != ' ' {
		indent = keyWidth
	}
	indent = min(indent, width/2)
	var lines []string
	rest := []rune(s)
	for room := width; len(rest) > room; room = width - indent {
		at := room
		for i := room; i > room/2; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.TrimLeft(string(rest[at:]), " "))
	}
	if len(rest) > 0 {
		lines = append(lines, string(rest))
	}
	for i := 1; i < len(lines); i++ {
		lines[i] = strings.Repeat(" ", indent) + lines[i]
	}
	return lines
}
