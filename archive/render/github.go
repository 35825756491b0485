package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// GitHub shows at most 10 annotations of a kind for a step, and refuses a job summary of more than 1 MiB
// (docs.github.com: workflow commands; usage limits).
const (
	maxAnnotations   = 10
	maxAnnotation    = 4000 // bytes of a message
	MaxGitHubSummary = 1 << 20
)

// WriteAnnotations writes workflow commands that annotate the job: errors for failed cases, warnings for unknown ones.
// If there are too many, the last annotation counts the rest.
func WriteAnnotations(w io.Writer, suites []Suite) error {
	for _, kind := range []struct {
		state   State
		command string
	}{{Failed, "error"}, {Unknown, "warning"}} {
		total, written := count(suites, kind.state), 0
		for _, s := range suites {
			for _, c := range s.Cases {
				if c.State != kind.state || written == maxAnnotations {
					continue
				}
				title, text := schema.Lines(c.Rule), schema.Lines(s.Name+": "+c.Message+"\n"+c.details())
				if written == maxAnnotations-1 && total > maxAnnotations {
					title, text = "more", fmt.Sprintf("%d more rules: %s; the job summary lists them", total-written,
						kind.state)
				}
				written++
				if _, err := fmt.Fprintf(w, "::%s title=%s::%s\n", kind.command, property(title),
					data(cut(strings.TrimSpace(text), maxAnnotation))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// data escapes the text of a workflow command, and property the value of a property
// (actions/toolkit, packages/core/src/command.ts).
func data(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func property(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

var marks = map[State]string{Passed: "✅", Failed: "❌", Unknown: "❔", Skipped: "➖"}

// WriteSummary writes a Markdown job summary of at most limit bytes.
func WriteSummary(w io.Writer, suites []Suite, limit int) error {
	var b strings.Builder
	b.WriteString("## assay-run\n\n| bundle | passed | failed | unknown | skipped |\n|---|---:|---:|---:|---:|\n")
	for i, s := range suites {
		if b.Len() > limit/2 {
			fmt.Fprintf(&b, "| … and %d more bundles | | | | |\n", len(suites)-i)
			break
		}
		one := []Suite{s}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", escapeMarkdown(s.Name), count(one, Passed), count(one, Failed),
			count(one, Unknown), count(one, Skipped))
	}
	left := 0
	for _, s := range suites {
		var part strings.Builder
		fmt.Fprintf(&part, "\n### %s\n\nrun %s, %s\n\n", escapeMarkdown(s.Name), escapeMarkdown(s.RunID),
			escapeMarkdown(s.Identity))
		for _, c := range s.Cases {
			fmt.Fprintf(&part, "- %s **%s** %s: %s\n", marks[c.State], escapeMarkdown(c.Rule), c.State,
				escapeMarkdown(c.Message))
			for line := range strings.Lines(c.details()) {
				fmt.Fprintf(&part, "  - %s\n", escapeMarkdown(cut(strings.TrimSpace(line), 400)))
			}
		}
		if b.Len()+part.Len() > limit-200 {
			left++
			continue
		}
		b.WriteString(part.String())
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n… and %d more bundles, for which there was no room.\n", left)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// escapeMarkdown escapes text from evidence for one line of Markdown.
func escapeMarkdown(s string) string { return view.Markdown(strings.ReplaceAll(s, "\n", " ")) }
