package judge

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// maxShown is how many values of a set are written for people.
const maxShown = 40

var answerWords = map[State]string{
	Equal:     "The runs are equal: nothing differs in what they did, as far as it can be observed.",
	Different: "The runs differ.",
	Unknown:   "Nothing is known to differ, but not everything could be compared.",
}

// WriteText writes the difference for a terminal: + is what only the head has,
// - what only the base has, and ? what may be on the other side as well,
// unobserved.
func (d *Diff) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "base  %s  %s\nhead  %s  %s\n\n%s\n", view.Clean(d.Base.RunID), view.Clean(d.Base.Name),
		view.Clean(d.Head.RunID), view.Clean(d.Head.Name), answerWords[d.Answer])
	if news := d.news(); news != "" {
		fmt.Fprintf(&b, "New in head: %s.\n", news)
	}
	writeChanges(&b, "verdict", d.Verdict)
	for _, s := range d.Sections {
		if s.answer() == Equal {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", s.Name)
		if s.Compared {
			writeValues(&b, s.mark("-"), s.Removed)
			writeValues(&b, s.mark("+"), s.Added)
		} else {
			fmt.Fprintf(&b, "  not compared: base has %d, head has %d\n", len(s.Removed)+len(s.Unchanged),
				len(s.Added)+len(s.Unchanged))
		}
		writeGaps(&b, "base", s.BaseGaps)
		writeGaps(&b, "head", s.HeadGaps)
	}
	writeChanges(&b, "what could be observed", d.Observed)
	_, err := io.WriteString(w, b.String())
	return err
}

// news counts what matters most of what only the head did: whom it talked to, what it ran
// and where it wrote.
func (d *Diff) news() string {
	var parts []string
	for _, s := range d.Sections {
		n := len(s.Added)
		switch {
		case n == 0 || !s.Compared:
		case s.Name == "hosts":
			parts = append(parts, schema.Count(n, "host", "hosts"))
		case s.Name == "programs":
			parts = append(parts, schema.Count(n, "program", "programs"))
		case s.Name == "files written":
			parts = append(parts, schema.Count(n, "file written", "files written"))
		}
	}
	return strings.Join(parts, ", ")
}

// mark is the sign of a value that only one side has.
func (s *Section) mark(sign string) string {
	if sign == "+" && len(s.BaseGaps) > 0 || sign == "-" && len(s.HeadGaps) > 0 {
		return "?" + sign
	}
	return " " + sign
}

func writeChanges(b *strings.Builder, title string, changes []Change) {
	if len(changes) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, c := range changes {
		fmt.Fprintf(b, "  %s: %s -> %s\n", c.What, orNone(view.Clean(c.Base)), orNone(view.Clean(c.Head)))
	}
}

func writeValues(b *strings.Builder, mark string, values []string) {
	for i, v := range values {
		if i == maxShown {
			fmt.Fprintf(b, "  … and %d more; --format json has them all\n", len(values)-i)
			return
		}
		fmt.Fprintf(b, " %s %s\n", mark, view.Cut(view.Clean(v), 240))
	}
}

func writeGaps(b *strings.Builder, side string, gaps []string) {
	for _, g := range gaps {
		fmt.Fprintf(b, "    %s: %s\n", side, view.Clean(g))
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// WriteMarkdown writes the difference for a pull request's comment.
func (d *Diff) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## Runs: %s\n\n%s\n\n| | run | bundle |\n|---|---|---|\n", d.Answer, answerWords[d.Answer])
	for _, s := range []struct {
		name string
		Side
	}{{"base", d.Base}, {"head", d.Head}} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.name, code(s.RunID), code(s.Name))
	}
	table := func(title string, changes []Change) {
		if len(changes) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n### %s\n\n| | base | head |\n|---|---|---|\n", title)
		for _, c := range changes {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.What, code(orNone(c.Base)), code(orNone(c.Head)))
		}
	}
	table("Verdict", d.Verdict)
	for _, s := range d.Sections {
		if s.answer() == Equal {
			continue
		}
		fmt.Fprintf(&b, "\n### %s%s\n\n", strings.ToUpper(s.Name[:1]), s.Name[1:])
		for _, list := range []struct {
			sign   string
			values []string
		}{{"-", s.Removed}, {"+", s.Added}} {
			word := map[string]string{" -": "only in base", " +": "only in head", "?-": "seen in base alone",
				"?+": "seen in head alone"}[s.mark(list.sign)]
			for i, v := range list.values {
				if !s.Compared {
					break
				}
				if i == maxShown {
					fmt.Fprintf(&b, "- … and %d more\n", len(list.values)-i)
					break
				}
				fmt.Fprintf(&b, "- %s: %s\n", word, code(view.Cut(v, 240)))
			}
		}
		for _, g := range s.BaseGaps {
			fmt.Fprintf(&b, "- base: %s\n", Markdown(g))
		}
		for _, g := range s.HeadGaps {
			fmt.Fprintf(&b, "- head: %s\n", Markdown(g))
		}
	}
	table("What could be observed", d.Observed)
	_, err := io.WriteString(w, b.String())
	return err
}

// code writes text from evidence as a Markdown code span that also fits a
// table's cell.
func code(s string) string {
	s = strings.ReplaceAll(view.Clean(s), "|", `\|`)
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 || s == "" {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// Markdown escapes text from evidence for Markdown, where it must stand for
// itself.
func Markdown(s string) string {
	var b strings.Builder
	for _, r := range view.Clean(s) {
		if strings.ContainsRune("\\`*_{}[]()#+!|<>&~@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
