package render

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// maxObjects limits the objects that are named in one line.
const maxObjects = 4

// printer prints a run. It is not safe for concurrent use.
type printer struct {
	opt   ShowOptions
	out   *bufio.Writer
	table *facts.Table
	err   error

	// The line that is printed next. Items with the same actor and verb are merged into it.
	next    item
	objects []string
	more    int    // objects beyond maxObjects
	total   uint64 // actions

	open  bool // a line of output has no end yet
	reads uint64
}

func newPrinter(w io.Writer, opt ShowOptions) *printer {
	return &printer{opt: opt, out: bufio.NewWriterSize(w, 64<<10), table: facts.NewTable()}
}

// kernel prints a kernel event. Events must come in order.
func (t *printer) kernel(e *schema.KernelEvent) error {
	t.table.Add(e)
	if e.Kind == schema.KindOpen && e.Class == schema.ClassAgent && !e.Failed() && !e.Writes() {
		t.reads += e.Times()
	}
	if it, ok := itemOf(e, t.table, &t.opt); ok {
		t.add(it)
	}
	return t.err
}

// add merges the item into the next line, or writes that and begins a new one.
func (t *printer) add(it item) {
	n := &t.next
	same := n.verb == it.verb && n.verb != "" && n.actor == it.actor && n.call == it.call && n.problem == it.problem &&
		(it.verb != "ran" && n.pid == it.pid || len(t.objects) == 1 && t.objects[0] == it.object)
	if !same {
		t.finish()
		t.next = it
	}
	t.total += it.times
	switch {
	case slices.Contains(t.objects, it.object):
	case len(t.objects) < maxObjects:
		t.objects = append(t.objects, it.object)
	default:
		t.more++
	}
}

// finish writes the next line.
func (t *printer) finish() {
	n := &t.next
	if n.verb == "" {
		return
	}
	if len(t.objects) == 1 {
		count := ""
		if t.total > 1 && n.verb != "wrote" {
			count = fmt.Sprintf("  ×%d", t.total)
		}
		t.line(view.Cut(schema.OneLine(t.objects[0]), 200) + count)
	} else {
		list := make([]string, len(t.objects))
		for i, o := range t.objects {
			list[i] = view.Cut(schema.OneLine(o), 120)
		}
		text := strings.Join(list, ", ")
		if t.more > 0 {
			text += fmt.Sprintf(", … and %d more", t.more)
		}
		t.line(text)
	}
	t.next, t.objects, t.more, t.total = item{}, t.objects[:0], 0, 0
}

// line writes the next line, with a text for its objects.
func (t *printer) line(text string) {
	t.endOutput()
	n := &t.next
	call := ""
	if n.call != "" {
		call = t.paint(dim, "  ["+view.Cut(schema.OneLine(n.call), 32)+"]")
	}
	verb := fmt.Sprintf("%-12s", n.verb)
	switch {
	case n.problem:
		verb = t.paint(red, verb)
	case n.verb == "ran":
		verb = t.paint(cyan, verb)
	}
	t.write(t.stamp(n.tns) + fmt.Sprintf("  %-14s ", view.Cut(schema.OneLine(n.actor), 14)) + verb + " " + text + call +
		"\n")
}

// heading writes a line that stands out.
func (t *printer) heading(tns int64, text string) {
	t.finish()
	t.endOutput()
	t.write(t.stamp(tns) + t.paint(bold, "● "+view.Cut(schema.OneLine(text), 240)) + "\n")
}

// detail writes a line below a heading.
func (t *printer) detail(text string) {
	t.write(strings.Repeat(" ", 14) + view.Cut(schema.OneLine(text), 240) + "\n")
}

// output writes what the run printed.
func (t *printer) output(tns int64, text string) {
	t.finish()
	for {
		line, rest, whole := strings.Cut(text, "\n")
		if !t.open && (whole || line != "") {
			t.write(t.stamp(tns) + t.paint(dim, "│ "))
			t.open = true
		}
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndexByte(line, '\r')+1:] // the rest was overwritten
		t.write(t.paint(dim, schema.OneLine(line)))
		if !whole {
			return
		}
		t.endOutput()
		text = rest
	}
}

func (t *printer) endOutput() {
	if t.open {
		t.write("\n")
		t.open = false
	}
}

// flush writes everything that was added so far.
func (t *printer) flush() error {
	t.finish()
	t.endOutput()
	if err := t.out.Flush(); err != nil {
		t.err = err
	}
	return t.err
}

func (t *printer) stamp(tns int64) string {
	return t.paint(dim, fmt.Sprintf("%10.3fs  ", float64(tns)/1e9))
}

const (
	bold = "1"
	dim  = "2"
	red  = "31"
	cyan = "36"
)

func (t *printer) paint(code, text string) string {
	if !t.opt.Colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (t *printer) write(s string) {
	if t.err == nil {
		_, t.err = t.out.WriteString(s)
	}
}

// end prints what has no time: the output that was captured without times, and what may be missing.
func (t *printer) end(b *view.Bundle, streams []stream, lost int) {
	for _, s := range streams {
		if len(s.data) == 0 {
			continue
		}
		title := fmt.Sprintf("\n%s (%d bytes; it was captured without times)\n", s.name, s.size)
		t.write(t.paint(bold, title))
		for line := range bytes.Lines(s.data) {
			t.detail("│ " + withoutEscapes(strings.TrimRight(string(line), "\r\n")))
		}
		if int64(len(s.data)) < s.size {
			t.detail(fmt.Sprintf("│ … and %d bytes more", s.size-int64(len(s.data))))
		}
	}
	t.write(t.paint(bold, "\nwhat this story may be missing\n"))
	for _, w := range view.Sentences(b.Docs) {
		mark := "  ✓ "
		if !w.Good {
			mark = "  ! "
		}
		t.write(mark + schema.OneLine(w.Text) + "\n")
		for _, why := range w.Why {
			t.write("      " + schema.OneLine(why) + "\n")
		}
	}
	if t.reads > 0 && !t.opt.Reads {
		t.write(fmt.Sprintf("  files were opened for reading %d times; --reads shows them\n", t.reads))
	}
	if lost > 0 {
		t.write(fmt.Sprintf("  %d further turns and lines of output found no room\n", lost))
	}
}
