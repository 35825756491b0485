package pages

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/runner/suite/figures"
)

// points formats a difference of rates in percentage points.
func points(difference float64) string { return fmt.Sprintf("%+.1f", 100*difference) }

// Comparison writes the comparisons as text for people.
func Comparison(w io.Writer, pairs []*figures.Pair) error {
	var b strings.Builder
	for i, p := range pairs {
		if i > 0 {
			b.WriteByte('\n')
		}
		comparison(&b, p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func comparison(b *strings.Builder, p *figures.Pair) {
	name := printable(p.AgentA)
	if p.AgentB != p.AgentA {
		name += " and " + printable(p.AgentB)
	}
	if p.Difference == nil {
		fmt.Fprintf(b, "%s: no task to compare\n", name)
	} else {
		fmt.Fprintf(b, "%s: %s: %s to %s, %s points", name, p.Outcome, percent(p.RateA), percent(p.RateB),
			points(*p.Difference))
		if p.CI95 != nil {
			fmt.Fprintf(b, " (95 %%: %s to %s)", points(p.CI95[0]), points(p.CI95[1]))
		}
		fmt.Fprintf(b, " over %d equal tasks\n", len(p.Tasks))
	}
	var takes []string
	for _, s := range []struct {
		a, b *float64
		what string
	}{{p.SpentA.Seconds, p.SpentB.Seconds, "%.1f s"}, {p.SpentA.Tokens, p.SpentB.Tokens, "%.0f tokens"},
		{p.SpentA.Cost, p.SpentB.Cost, "cost %.4f"}} {
		if s.a != nil && s.b != nil {
			takes = append(takes, fmt.Sprintf(s.what+" to "+s.what, *s.a, *s.b))
		}
	}
	if len(takes) > 0 {
		fmt.Fprintf(b, "  per attempt: %s\n", strings.Join(takes, ", "))
	}
	for _, t := range p.Tasks {
		if t.Difference != 0 {
			fmt.Fprintf(b, "  %s: %s to %s\n", printable(t.Task), percent(&t.RateA), percent(&t.RateB))
		}
	}
	for _, t := range p.Changed {
		fmt.Fprintf(b, "  not compared: %s has changed: %s\n", printable(t.Task),
			printable(strings.Join(t.Keys, ", ")))
	}
	for _, left := range []struct {
		names []string
		why   string
	}{{p.OnlyA, "only in the first suite"}, {p.OnlyB, "only in the second suite"},
		{p.Unrated, "an agent has no attempt that counts"}} {
		for _, name := range left.names {
			fmt.Fprintf(b, "  not compared: %s: %s\n", printable(name), left.why)
		}
	}
	if len(p.AgentChanged) > 0 {
		fmt.Fprintf(b, "  the agents differ: %s\n", printable(strings.Join(p.AgentChanged, ", ")))
	}
}
