package view

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// WriteText writes the summary for people, as one page: what a reviewer looks for
// first, then the rest. Without look.All it has at most pageLines lines, and one for each
// section that found no room.
func (s *Summary) WriteText(w io.Writer, look Page) error {
	sections := s.sections(cmp.Or(look.Limit, DefaultLimit))
	return look.Write(w, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		switch {
		case look.Section != "":
			i := slices.IndexFunc(sections, func(x section) bool { return x.name == look.Section })
			if i < 0 {
				return fmt.Errorf("%q is not a section; those of this bundle are %s", look.Section,
					strings.Join(sectionNames(sections), ", "))
			}
			sections[i].write(b)
		case look.All:
			for _, x := range sections {
				if x.title != "" {
					b.WriteByte('\n')
				}
				x.write(b)
			}
		default:
			writePage(b, sections)
		}
		return b.Flush()
	})
}

// section is a part of the page: a heading, empty for the head of the page, and rows.
type section struct {
	name  string // as --section has it
	title string
	total uint64
	first bool // it stands on the short page, as far as there is room
	rows  []string
}

func (x section) write(b *bufio.Writer) {
	if x.title != "" {
		fmt.Fprintf(b, "%s\n", x.heading())
	}
	for _, row := range x.rows {
		b.WriteString(row + "\n")
	}
}

func (x section) heading() string {
	if x.total == 0 {
		return x.title
	}
	return fmt.Sprintf("%s (%d)", x.title, x.total)
}

func sectionNames(sections []section) (names []string) {
	for _, x := range sections {
		names = append(names, x.name)
	}
	return names
}

// pageLines is how long the short page is at most, maxHead how much of that the head and
// what may be claimed have each, and maxRows how much any other section has.
const (
	pageLines = 40
	maxHead   = 12
	maxRows   = 8
)

// writePage writes the head and what may be claimed, of the sections that come first as
// much as there is room for, and a line for each of the others.
func writePage(b *bufio.Writer, sections []section) {
	room := pageLines - 1 // the last line says how to see the rest
	var first, rest []section
	for _, x := range sections {
		switch {
		case x.name == "about" || x.name == "claims" || x.name == "findings":
			x.rows = cutRows(x.rows, maxHead)
			x.write(b)
			room -= len(x.rows)
			if x.title != "" {
				room--
			}
		case x.first:
			first = append(first, x)
		default:
			rest = append(rest, x)
		}
	}
	first = first[:min(len(first), room/2)]
	if most := room - 2*len(first); len(rest) > most {
		most = max(most, 1)
		var others []string
		for _, x := range rest[most-1:] {
			others = append(others, x.heading())
		}
		rest = append(slices.Clone(rest[:most-1]), section{title: Cut(strings.Join(others, ", "), 200)})
	}
	// Each gets a row before any gets its second.
	rows := make([]int, len(first))
	for left, grown := room-len(rest)-len(first), true; grown; {
		grown = false
		for i, x := range first {
			if left > 0 && rows[i] < min(len(x.rows), maxRows) {
				rows[i]++
				left--
				grown = true
			}
		}
	}
	for i, x := range first {
		x.rows = cutRows(x.rows, rows[i])
		x.write(b)
	}
	for _, x := range rest {
		fmt.Fprintf(b, "%s\n", x.heading())
	}
	fmt.Fprintf(b, "(--all shows all of it, --section NAME one of: %s)\n", strings.Join(sectionNames(sections), " "))
}

// cutRows keeps most rows, the last of which says how many are missing.
func cutRows(rows []string, most int) []string {
	if len(rows) <= most || most < 2 {
		return rows[:min(len(rows), max(most, 0))]
	}
	return append(slices.Clone(rows[:most-1]),
		fmt.Sprintf("  … and %s", schema.Count(len(rows)-most+1, "more line", "more lines")))
}

// sections are all parts of the page that have something, in their order.
func (s *Summary) sections(limit int) []section {
	outside := func(f File) bool { return f.Outside }
	secrets, read := split(s.Read, func(f File) bool { return f.Secret })
	readOutside, readInside := split(read, outside)
	madeOutside, made := split(s.Created, outside)
	wroteOutside, wrote := split(s.Written, outside)
	changedOutside, changed := split(s.Changed, outside)
	deletedOutside, deleted := split(s.Deleted, outside)

	text := func(name, title string, total uint64, first bool, write func(*bufio.Writer)) section {
		var out bytes.Buffer
		b := bufio.NewWriter(&out)
		write(b)
		b.Flush()
		x := section{name: name, title: title, total: total, first: first}
		for line := range strings.Lines(out.String()) {
			x.rows = append(x.rows, strings.TrimSuffix(line, "\n"))
		}
		return x
	}
	all := []section{
		text("findings", "what the evaluation found", 0, true, func(b *bufio.Writer) {
			writeFindings(b, s.Evaluation)
		}),
		text("about", "", 0, true, func(b *bufio.Writer) { s.writeAbout(b) }),
		text("claims", "what may be claimed", 0, true, func(b *bufio.Writer) { writeClaims(b, s.Claims) }),
		listed("denied", "denied", s.Denied, limit, true, failureRow),
		listed("secrets", "files read that may hold secrets", secrets, limit, true, fileRow),
		text("calls", "tool calls", s.Calls.Total, true, func(b *bufio.Writer) { s.writeCalls(b, limit) }),
		listed("created-outside", "files created outside of the workspace", madeOutside, limit, true, fileRow),
		listed("written-outside", "files written outside of the workspace", wroteOutside, limit, true, fileRow),
		listed("changed-outside", "files changed outside of the workspace", changedOutside, limit, true, fileRow),
		listed("deleted-outside", "files deleted outside of the workspace", deletedOutside, limit, true, fileRow),
		listed("hosts", "hosts", s.Hosts, limit, true, hostRow),
		listed("programs", "programs", s.Programs, limit, true, func(p Program) []string {
			return []string{times(p.Count), Clean(p.Exe), by(p.By), only(p.Made, "made in this run")}
		}),
		listed("containers", "containers", s.Containers, limit, false, func(c Container) []string {
			return []string{times(c.Count), c.ID[:min(12, len(c.ID))], Clean(c.Name), Clean(c.Image),
				Clean(QuoteArgs(c.Argv))}
		}),
		listed("names", "names asked for", s.Lookups, limit, false, func(n Name) []string {
			return []string{times(n.Count), Clean(n.Name)}
		}),
		listed("read-outside", "files read outside of the workspace", readOutside, limit, false, fileRow),
		listed("created", "files created", made, limit, false, fileRow),
		listed("written", "files written", wrote, limit, false, fileRow),
		listed("changed", "files changed", changed, limit, false, fileRow),
		listed("deleted", "files deleted", deleted, limit, false, fileRow),
		listed("privileged", "privileged", s.Privileged, limit, false, failureRow),
		text("processes", "processes", s.Processes.Total, false, func(b *bufio.Writer) { s.writeProcesses(b, limit) }),
		listed("commands", "commands", s.Commands, limit, false, func(c Command) []string {
			return []string{times(c.Count), Clean(c.Exe), Cut(QuoteArgs(c.Argv), 160)}
		}),
		listed("read", "files read in the workspace", readInside, limit, false, fileRow),
		listed("failed", "failed", s.Failed, limit, false, failureRow),
		text("cost", "what it used", 0, false, func(b *bufio.Writer) { s.writeCost(b) }),
	}
	return slices.DeleteFunc(all, func(x section) bool { return len(x.rows) == 0 })
}

// writeFindings writes what the rules about an agent under evaluation say: those that do not pass, with what
// was found, and the others in a line.
func writeFindings(w io.Writer, verdicts []schema.EvaluationVerdict) {
	var passed []string
	for _, v := range verdicts {
		if v.State == "pass" {
			passed = append(passed, v.Rule)
			continue
		}
		fmt.Fprintf(w, "  %-7s %s: %s\n", v.State, Clean(v.Rule), Clean(v.Message))
	}
	if len(passed) > 0 {
		fmt.Fprintf(w, "  pass    %s\n", strings.Join(passed, ", "))
	}
}

// writeClaims writes what may be concluded, and what may not and why.
func writeClaims(w io.Writer, claims []Sentence) {
	for _, c := range claims {
		if c.Good {
			fmt.Fprintf(w, "  ✓ %s\n", Clean(c.Text))
			continue
		}
		text := c.Text
		if len(c.Why) > 0 {
			text = strings.TrimSuffix(text, ".") + ": " + Gap{Text: c.Why[0], Remedy: c.Remedy}.String()
			if more := len(c.Why) - 1; more > 0 {
				text += fmt.Sprintf(" (and %s)", schema.Count(more, "other reason", "other reasons"))
			}
		}
		fmt.Fprintf(w, "  ! %s\n", Clean(text))
	}
}

func hostRow(h Host) []string {
	name := Clean(h.Endpoint)
	if len(h.Names) > 0 {
		names := make([]string, len(h.Names))
		for i, n := range h.Names {
			names[i] = Clean(n)
		}
		name += " (" + strings.Join(names, ", ") + ")"
	}
	if h.Listening {
		name += fmt.Sprintf(" (listening, peers: %d)", h.Peers)
	}
	name += h.Network.Mark()
	return []string{times(h.Count), "out " + Size(h.BytesOut), "in " + Size(h.BytesIn), name}
}

func (s *Summary) writeProcesses(b *bufio.Writer, limit int) {
	shown := uint64(0)
	writeTree(b, s.Processes.Roots, "  ", uint64(10*limit), &shown)
	if more := int64(s.Processes.Total) - int64(shown); more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
}

// listed is a list as a section, its columns aligned.
func listed[T any](name, title string, l List[T], limit int, first bool, cells func(T) []string) section {
	x := section{name: name, title: title, total: l.Total, first: first}
	if len(l.Items) == 0 && l.Beyond == 0 {
		return x
	}
	l.Items = l.Items[:min(limit, len(l.Items))]
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
	if more := l.Total - uint64(len(l.Items)); more > 0 {
		x.rows = append(x.rows, fmt.Sprintf("  … and %d more", more))
	}
	if l.Beyond > 0 {
		x.rows = append(x.rows, fmt.Sprintf("  … and %d occurrences of others", l.Beyond))
	}
	return x
}

func counts(m map[string]uint64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", Clean(k), m[k]))
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
	return []string{times(f.Count), bytes, Clean(f.Path), by(f.By, f.ByEach...)}
}

func failureRow(f Failure) []string {
	rule := ""
	if f.Rule != "" {
		rule = "rule " + Clean(f.Rule)
	}
	return []string{times(f.Count), Clean(f.Kind), Clean(f.Result), Clean(f.Value), by(f.By, f.ByEach...), rule}
}

func by(exe string, each ...User) string {
	if len(each) == 0 && exe == "" {
		return ""
	}
	if len(each) == 0 {
		return "by " + Clean(exe)
	}
	all := make([]string, len(each))
	for i, u := range each {
		all[i] = fmt.Sprintf("%s %d×", cmp.Or(Clean(u.Exe), "others"), u.Count)
	}
	return "by " + strings.Join(all, ", ")
}

// maxDepth is how deep the tree is drawn; a chain of forks can be longer than
// any line.
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
			name = Clean(p.Exe)
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
			line += "  " + Clean(p.Signal)
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
