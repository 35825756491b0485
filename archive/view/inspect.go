package view

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// section is a part of the page.
type section struct {
	name  string // the value of --section
	title string // empty for the head of the page
	total uint64 // shown in the heading, unless 0
	first bool   // shown on the short page as far as there is room
	rows  []string
	// text is set if a row is a line of text; else it is an item. more is how many items are not among the rows,
	// and beyond the events of items that were not tracked (see List).
	text         bool
	more, beyond uint64
	brief        *section // instead of this one on the short page, unless nil
}

// lines are the rows, and one that says what is not among them.
func (x section) lines() []string {
	var parts []string
	switch {
	case x.more > 0 && x.text:
		parts = append(parts, schema.Count(x.more, "more line", "more lines"))
	case x.more > 0:
		parts = append(parts, fmt.Sprintf("%d more", x.more))
	}
	if x.beyond > 0 {
		parts = append(parts, schema.Count(x.beyond, "event", "events")+" of others that were not kept")
	}
	if parts == nil {
		return x.rows
	}
	return append(slices.Clone(x.rows), "  … and "+strings.Join(parts, ", and "))
}

// cut returns the section with at most this number of lines.
func (x section) cut(most int) section {
	switch {
	case len(x.lines()) <= most:
		return x
	case most < 2: // the heading says how many there are
		x.title, x.total, x.more, x.beyond = x.heading(), 0, 0, 0
		x.rows = x.rows[:min(len(x.rows), max(most, 0))]
		return x
	}
	x.more += uint64(len(x.rows) - most + 1)
	x.rows = x.rows[:most-1]
	return x
}

func (x section) write(b *bufio.Writer) {
	if x.title != "" {
		fmt.Fprintf(b, "%s\n", x.heading())
	}
	for _, line := range x.lines() {
		b.WriteString(line + "\n")
	}
}

func (x section) heading() string {
	if x.total == 0 {
		return x.title
	}
	return fmt.Sprintf("%s (%d%s)", x.title, x.total, only(x.beyond > 0, " and more"))
}

func sectionNames(sections []section) (names []string) {
	for _, x := range sections {
		names = append(names, x.name)
	}
	return names
}

// Limits of the short page, in lines.
const (
	pageLines = 40
	maxHead   = 12 // of each of the head, the claims and the findings
	maxRows   = 8  // of each other section
)

// writePage writes the short page: the findings and the head with what is open, as much of the first sections as fits,
// and one line for each other section.
func writePage(b *bufio.Writer, sections []section) {
	room := pageLines - 1 // the last line says how to see the rest
	var first []section
	var others []string
	for _, x := range sections {
		if x.brief != nil {
			x = *x.brief
		}
		switch {
		case len(x.lines()) == 0:
		case x.name == "claims": // the head has them
		case x.name == "about" || x.name == "findings":
			x = x.cut(maxHead)
			x.write(b)
			room -= len(x.lines())
			if x.title != "" {
				room--
			}
		case x.first:
			first = append(first, x)
		default:
			others = append(others, x.heading())
		}
	}
	first = first[:min(len(first), room/2)]
	// Every section gets its first row before any gets a second one, and so on.
	rows := make([]int, len(first))
	for left, grown := room-1-len(first), true; grown; {
		grown = false
		for i, x := range first {
			if left > 0 && rows[i] < min(len(x.lines()), maxRows) {
				rows[i]++
				left--
				grown = true
			}
		}
	}
	for i, x := range first {
		x.cut(rows[i]).write(b)
	}
	if len(others) > 0 {
		fmt.Fprintf(b, "not shown: %s\n", strings.Join(others, ", "))
	}
	fmt.Fprintf(b, "(--all shows all of it, --section NAME one of: %s)\n", strings.Join(sectionNames(sections), " "))
}

// writeFindings writes a line for each evaluation rule that does not pass, and one line with those that do.
func writeFindings(w io.Writer, verdicts []schema.EvaluationVerdict) {
	var passed []string
	for _, v := range verdicts {
		if v.State == "pass" {
			passed = append(passed, v.Rule)
			continue
		}
		fmt.Fprintf(w, "  %-7s %s: %s\n", v.State, schema.OneLine(v.Rule), schema.OneLine(v.Message))
	}
	if len(passed) > 0 {
		fmt.Fprintf(w, "  pass    %s\n", strings.Join(passed, ", "))
	}
}

// writeClaims writes what may be concluded from the bundle, and what may not and why.
func writeClaims(w io.Writer, claims []Sentence) {
	for _, c := range claims {
		if c.Good {
			fmt.Fprintf(w, "  ✓ %s\n", schema.OneLine(c.Text))
			continue
		}
		text := c.Text
		if len(c.Why) > 0 {
			text = strings.TrimSuffix(text, ".") + ": " + Gap{Text: c.Why[0], Remedy: c.Remedy}.String()
			if more := len(c.Why) - 1; more > 0 {
				text += fmt.Sprintf(" (and %s)", schema.Count(more, "other reason", "other reasons"))
			}
		}
		fmt.Fprintf(w, "  ! %s\n", schema.OneLine(text))
	}
}

func hostRow(h Host) []string {
	name := schema.OneLine(h.Endpoint)
	if len(h.Names) > 0 {
		names := make([]string, len(h.Names))
		for i, n := range h.Names {
			names[i] = schema.OneLine(n)
		}
		name += " (" + strings.Join(names, ", ") + ")"
	}
	if h.Listening {
		name += fmt.Sprintf(" (listening, peers: %d)", h.Peers)
	}
	name += h.Network.Mark() + only(h.Proxy, " (the run's proxy)")
	return []string{times(h.Count), "out " + Size(h.BytesOut), "in " + Size(h.BytesIn), name}
}

// listed returns a section with a list's items in aligned columns.
func listed[T any](name, title string, l List[T], limit int, first bool, cells func(T) []string) section {
	l.Items = l.Items[:min(limit, len(l.Items))]
	x := section{name: name, title: title, total: l.Total, first: first, more: l.Total - uint64(len(l.Items)),
		beyond: l.Beyond}
	rows := make([][]string, len(l.Items))
	var width []int
	for i, item := range l.Items {
		rows[i] = cells(item)
		for c, s := range rows[i] {
			if c == len(width) {
				width = append(width, 0)
			}
			if n := len([]rune(s)); c < len(rows[i])-1 && n <= 60 {
				width[c] = max(width[c], n)
			}
		}
	}
	for _, r := range rows {
		line := " "
		for c, s := range r {
			if width[c] > 0 || s != "" {
				line += fmt.Sprintf(" %-*s", width[c], s)
			}
		}
		x.rows = append(x.rows, strings.TrimRight(line, " "))
	}
	return x
}

func counts(m map[string]uint64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", schema.OneLine(k), m[k]))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func times(n uint64) string { return fmt.Sprintf("%d×", n) }

func fileRow(f File) []string {
	bytes := ""
	if f.Bytes > 0 {
		bytes = Size(f.Bytes)
	}
	return []string{times(f.Count), bytes, schema.OneLine(f.Path), by(f.By, f.ByEach...)}
}

func failureRow(f Failure) []string {
	rule := ""
	if f.Rule != "" {
		rule = "rule " + schema.OneLine(f.Rule)
	}
	return []string{times(f.Count), schema.OneLine(f.Kind), schema.OneLine(f.Result), schema.OneLine(f.Value),
		by(f.By, f.ByEach...), rule}
}

func by(exe string, each ...User) string {
	if len(each) == 0 && exe == "" {
		return ""
	}
	if len(each) == 0 {
		return "by " + schema.OneLine(exe)
	}
	all := make([]string, len(each))
	for i, u := range each {
		all[i] = fmt.Sprintf("%s %d×", cmp.Or(schema.OneLine(u.Exe), "others"), u.Count)
	}
	return "by " + strings.Join(all, ", ")
}

// maxDepth limits the depth of the drawn tree, since a chain of forks can be longer than any line.
const maxDepth = 40

func writeTree(b *bufio.Writer, ps []*Node, indent string, most uint64, shown *uint64) {
	if len(indent) > 2*maxDepth {
		fmt.Fprintf(b, "%s…\n", indent)
		return
	}
	for _, p := range ps {
		if *shown >= most {
			return
		}
		*shown += p.Count
		name := Cut(QuoteArgs(p.Argv), 120)
		if name == "" {
			name = schema.OneLine(p.Exe)
		}
		if name == "" {
			name = "?"
		}
		line := fmt.Sprintf("%s%d %s", indent, p.PID, name)
		if p.Execs == 0 && !p.Joined {
			line += " (fork)"
		}
		if p.Joined {
			line += " (joined)"
		}
		switch {
		case p.Signal != "":
			line += "  " + schema.OneLine(p.Signal)
		case p.ExitCode != nil && *p.ExitCode != 0:
			line += fmt.Sprintf("  exit %d", *p.ExitCode)
		case p.EndNS == nil:
			line += "  not ended"
		}
		if p.Count > 1 {
			line += fmt.Sprintf("  ×%d", p.Count)
		}
		fmt.Fprintln(b, line)
		writeTree(b, p.Children, indent+"  ", most, shown)
	}
}
