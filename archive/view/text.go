package view

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/assay-run/assay-run/schema"
)

// QuoteArgs quotes arguments for a shell. The result is safe for a terminal.
func QuoteArgs(args []string) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		bare := a != "" && strings.IndexFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
				strings.ContainsRune("-_./=:,+@%", r))
		}) < 0
		if bare {
			b.WriteString(a)
		} else {
			b.WriteString("'" + strings.ReplaceAll(schema.OneLine(a), "'", `'\''`) + "'")
		}
	}
	return b.String()
}

// Markdown makes a recorded string safe for one line of Markdown, which then shows it literally.
func Markdown(s string) string {
	var b strings.Builder
	for _, r := range schema.OneLine(s) {
		if strings.ContainsRune("\\`*_{}[]()#+!|<>&~@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Cut shortens s to n characters, with "…" as the last.
func Cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Size writes a number of bytes for people.
func Size(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[u])
}

// seconds formats nanoseconds as seconds.
func seconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e9, 'f', 6, 64) }

// Path returns an event's value if it is a path, otherwise an empty string.
func Path(e *schema.KernelEvent) string {
	if e.Kind == schema.KindChdir || e.Kind == schema.KindMount {
		return e.Value
	}
	for name, how := range e.Touches() {
		if name == e.Value && how != schema.AccessConnect {
			return name
		}
	}
	return ""
}
