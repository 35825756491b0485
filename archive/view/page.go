package view

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// Page says how text is shown. The zero value is a short page without colours, with lines of any length.
type Page struct {
	// All shows every section of a [Summary], Section the one of that name. Without them the page is short.
	All     bool
	Section string
	// Limit is the number of entries shown of each list; 0 means DefaultLimit.
	Limit int
	// Width is the number of columns at which lines are broken; 0 breaks none.
	Width int
	// Paint colours each line; nil means no colours.
	Paint Painter
}

// DefaultLimit is the default of Page.Limit.
const DefaultLimit = 20

// Write calls write with a writer that breaks and colours lines, and passes whole lines on to w. Lines may already
// have SGR sequences (colours): these have no width, and continue after a line break.
func (look Page) Write(w io.Writer, write func(io.Writer) error) error {
	p := &page{Page: look, w: w}
	err := write(p)
	if len(p.part) > 0 {
		_, end := p.Write([]byte{'\n'})
		err = errors.Join(err, end)
	}
	return err
}

// page is the writer of Page.Write.
type page struct {
	Page
	w    io.Writer
	part []byte       // the beginning of an unfinished line
	out  bytes.Buffer // finished lines that are not yet in w
}

func (p *page) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		p.part = append(p.part, line...)
		if !whole {
			_, err := p.out.WriteTo(p.w)
			return n, err
		}
		p.line(string(p.part))
		p.part, b = p.part[:0], rest
	}
}

func (p *page) line(s string) {
	if p.Paint != nil {
		s = p.Paint(s)
	}
	for _, part := range broken(s, p.Width) {
		p.out.WriteString(part)
		p.out.WriteByte('\n')
	}
}

// broken breaks a line into lines of at most width characters, at spaces if possible. All but the first are indented
// more than the first.
func broken(s string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return []string{s}
	}
	rest := paints(s)
	if len(rest) <= width {
		return []string{s}
	}
	spaces := 0
	for spaces < len(rest) && rest[spaces].r == ' ' {
		spaces++
	}
	indent := spaces + 4
	if spaces == 0 {
		indent = keyWidth
	}
	indent = min(indent, width/2)
	var lines []string
	for room := width; len(rest) > room; room = width - indent {
		at := room
		for i := room; i > room/2; i-- {
			if rest[i].r == ' ' {
				at = i
				break
			}
		}
		end := at
		for end > 0 && rest[end-1].r == ' ' {
			end--
		}
		lines = append(lines, painted(rest[:end]))
		for rest = rest[at:]; len(rest) > 0 && rest[0].r == ' '; {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		lines = append(lines, painted(rest))
	}
	for i := 1; i < len(lines); i++ {
		lines[i] = strings.Repeat(" ", indent) + lines[i]
	}
	return lines
}

// paint is a character and the SGR sequence in effect; empty for none.
type paint struct {
	r     rune
	style string
}

func paints(s string) (all []paint) {
	style := ""
	for s != "" {
		if strings.HasPrefix(s, "\x1b[") {
			if sequence, rest, ok := strings.Cut(s, "m"); ok {
				if style = sequence + "m"; style == reset {
					style = ""
				}
				s = rest
				continue
			}
		}
		r, n := utf8.DecodeRuneInString(s)
		all = append(all, paint{r, style})
		s = s[n:]
	}
	return all
}

func painted(all []paint) string {
	var b strings.Builder
	style := ""
	for _, c := range all {
		if c.style != style {
			if style != "" {
				b.WriteString(reset)
			}
			style = c.style
			b.WriteString(style)
		}
		b.WriteRune(c.r)
	}
	if style != "" {
		b.WriteString(reset)
	}
	return b.String()
}
