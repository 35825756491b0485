package view

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteText writes the summary for people, as one page: what a reviewer looks for
// first, then the rest.
func (s *Summary) WriteText(w io.Writer, look Page) error {
	return look.Write(w, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		s.write(b, cmp.Or(look.Limit, DefaultLimit))
		return b.Flush()
	})
}

func (s *Summary) write(b *bufio.Writer, limit int) {
	outside := func(f File) bool { return f.Outside }
	secrets, read := split(s.Read, func(f File) bool { return f.Secret })
	readOutside, readInside := split(read, outside)
	madeOutside, made := split(s.Created, outside)
	wroteOutside, wrote := split(s.Written, outside)
	changedOutside, changed := split(s.Changed, outside)
	deletedOutside, deleted := split(s.Deleted, outside)

	s.writeAbout(b)
	section(b, "denied", s.Denied, limit, failureRow)
	section(b, "files read that may hold secrets", secrets, limit, fileRow)
	section(b, "files read outside of the workspace", readOutside, limit, fileRow)
	section(b, "containers", s.Containers, limit, func(c Container) []string {
		return []string{times(c.Count), c.ID[:min(12, len(c.ID))], Clean(c.Name), Clean(c.Image), Clean(QuoteArgs(c.Argv))}
	})
	section(b, "programs", s.Programs, limit, func(p Program) []string {
		return []string{times(p.Count), Clean(p.Exe), by(p.By), only(p.Made, "made in this run")}
	})
	section(b, "hosts", s.Hosts, limit, func(h Host) []string {
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
		return []string{times(h.Count), "out " + Size(h.BytesOut), "in " + Size(h.BytesIn), name}
	})
	section(b, "names asked for", s.Lookups, limit, func(n Name) []string { return []string{times(n.Count), Clean(n.Name)} })
	section(b, "files created", made, limit, fileRow)
	section(b, "files written", wrote, limit, fileRow)
	section(b, "files changed", changed, limit, fileRow)
	section(b, "files deleted", deleted, limit, fileRow)
	section(b, "privileged", s.Privileged, limit, failureRow)
	s.writeCalls(b, limit)
	section(b, "files created outside of the workspace", madeOutside, limit, fileRow)
	section(b, "files written outside of the workspace", wroteOutside, limit, fileRow)
	section(b, "files changed outside of the workspace", changedOutside, limit, fileRow)
	section(b, "files deleted outside of the workspace", deletedOutside, limit, fileRow)
	if s.Processes.Total > 0 {
		fmt.Fprintf(b, "\nprocesses (%d)\n", s.Processes.Total)
		shown := uint64(0)
		writeTree(b, s.Processes.Roots, "  ", uint64(10*limit), &shown)
		if more := int64(s.Processes.Total) - int64(shown); more > 0 {
			fmt.Fprintf(b, "  … and %d more\n", more)
		}
	}
	section(b, "commands", s.Commands, limit, func(c Command) []string {
		return []string{times(c.Count), Clean(c.Exe), Cut(QuoteArgs(c.Argv), 160)}
	})
	section(b, "files read in the workspace", readInside, limit, fileRow)
	section(b, "failed", s.Failed, limit, failureRow)
	s.writeCost(b)
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
	return []string{times(f.Count), bytes, Clean(f.Path), by(f.By)}
}

func failureRow(f Failure) []string {
	rule := ""
	if f.Rule != "" {
		rule = "rule " + Clean(f.Rule)
	}
	return []string{times(f.Count), Clean(f.Kind), Clean(f.Result), Clean(f.Value), by(f.By), rule}
}

func by(exe string) string {
	if exe == "" {
		return ""
	}
	return "by " + Clean(exe)
}

// section writes a list under a heading, its columns aligned; nothing when it
// is empty.
func section[T any](b *bufio.Writer, title string, l List[T], limit int, cells func(T) []string) {
	if len(l.Items) == 0 && l.Beyond == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s (%d)\n", title, l.Total)
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
		fmt.Fprintln(b, strings.TrimRight(line, " "))
	}
	if more := l.Total - uint64(len(l.Items)); more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
	if l.Beyond > 0 {
		fmt.Fprintf(b, "  … and %d occurrences of others\n", l.Beyond)
	}
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
