package query

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteText writes the summary for people: plain, aligned, fit for a terminal.
func (s *Summary) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	s.writeAbout(b)
	if s.Processes.Total > 0 {
		fmt.Fprintf(b, "\nprocesses (%d)\n", s.Processes.Total)
		writeTree(b, s.Processes.Roots, "  ")
		if more := int64(s.Processes.Total) - int64(s.Processes.Shown); more > 0 {
			fmt.Fprintf(b, "  … and %d more\n", more)
		}
	}
	s.writeCalls(b)
	section(b, "denied", s.Denied, failureRow)
	section(b, "privileged", s.Privileged, failureRow)
	section(b, "hosts", s.Hosts, func(h Host) []string {
		name := clean(h.Endpoint)
		if len(h.Names) > 0 {
			names := make([]string, len(h.Names))
			for i, n := range h.Names {
				names[i] = clean(n)
			}
			name += " (" + strings.Join(names, ", ") + ")"
		}
		return []string{times(h.Count), "out " + size(h.BytesOut), "in " + size(h.BytesIn), name}
	})
	section(b, "names asked for", s.Lookups, func(n Name) []string { return []string{times(n.Count), clean(n.Name)} })
	section(b, "commands", s.Commands, func(c Command) []string {
		return []string{times(c.Count), clean(c.Exe), cut(quoteArgs(c.Argv), 160)}
	})
	section(b, "files created", s.Created, fileRow)
	section(b, "files written", s.Written, fileRow)
	section(b, "files changed", s.Changed, fileRow)
	section(b, "files deleted", s.Deleted, fileRow)
	section(b, "files read", s.Read, fileRow)
	section(b, "failed", s.Failed, failureRow)
	return b.Flush()
}

func counts(m map[string]uint64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", clean(k), m[k]))
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
		bytes = size(f.Bytes)
	}
	return []string{times(f.Count), bytes, clean(f.Path), by(f.By)}
}

func failureRow(f Failure) []string {
	rule := ""
	if f.Rule != "" {
		rule = "rule " + clean(f.Rule)
	}
	return []string{times(f.Count), clean(f.Kind), clean(f.Result), clean(f.Value), by(f.By), rule}
}

func by(exe string) string {
	if exe == "" {
		return ""
	}
	return "by " + clean(exe)
}

// section writes a list under a heading, its columns aligned; nothing when it
// is empty.
func section[T any](b *bufio.Writer, title string, l List[T], cells func(T) []string) {
	if len(l.Items) == 0 && l.Beyond == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s (%d)\n", title, l.Total)
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

func writeTree(b *bufio.Writer, ps []*Process, indent string) {
	if len(indent) > 2*maxDepth {
		fmt.Fprintf(b, "%s…\n", indent)
		return
	}
	for _, p := range ps {
		name := cut(quoteArgs(p.Argv), 120)
		if name == "" {
			name = clean(p.Exe)
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
			line += "  " + clean(p.Signal)
		case p.ExitCode != nil && *p.ExitCode != 0:
			line += fmt.Sprintf("  exit %d", *p.ExitCode)
		case p.EndNS == nil:
			line += "  not ended"
		}
		if p.Count > 1 {
			line += fmt.Sprintf("  ×%d", p.Count)
		}
		fmt.Fprintln(b, line)
		writeTree(b, p.Children, indent+"  ")
	}
}
