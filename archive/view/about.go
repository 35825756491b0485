package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// reachable is the code of the reason that is shown on the "tamper" row.
const reachable = "evidence_reachable"

// rows returns a function that writes one row: a key and a text.
func rows(w io.Writer) func(key, format string, args ...any) {
	return func(key, format string, args ...any) { fmt.Fprintf(w, "%-10s %s\n", key, fmt.Sprintf(format, args...)) }
}

// only returns s if yes is true, otherwise an empty string.
func only(yes bool, s string) string {
	if yes {
		return s
	}
	return ""
}

func checkWord(c schema.CheckSummary) string {
	if c.Result == schema.CheckNotRun {
		return "not run"
	}
	return schema.OneLine(c.Result)
}

func checkDetail(c schema.CheckSummary) string {
	detail := ""
	switch {
	case c.TimedOut:
		detail = " (timed out)"
	case c.Result == schema.CheckFailed && c.ExitCode != nil:
		detail = fmt.Sprintf(" (exit %d)", *c.ExitCode)
	}
	// Every check is expected to read the sources alone.
	if n := len(c.Influences); n > 1 || n == 1 && c.Influences[schema.InfluenceSource] == 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(c.Influences)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", c.Influences[kind], schema.OneLine(kind)))
		}
		detail += " (read files that the command wrote: " + strings.Join(kinds, ", ") + ")"
	}
	if c.GatesNothing {
		detail += " (proves nothing: it passed before the agent started)"
	}
	return detail
}
