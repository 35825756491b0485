package pages

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/schema"
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

// outcome is whether the second agent is better, and by how much.
func outcome(c *figures.Comparison) string {
	return fmt.Sprintf("%s: %s to %s, %s points", c.Outcome, percent(c.RateA), percent(c.RateB), points(*c.Difference))
}

// differences writes the intervals of a difference, and which difference would be found.
func differences(b *strings.Builder, c *figures.Comparison) {
	fmt.Fprintf(b, "  these tasks again: %s to %s points (95 %%)\n", points(c.TheseTasksAgain[0]),
		points(c.TheseTasksAgain[1]))
	if c.TasksLikeThese == nil {
		fmt.Fprintf(b, "  tasks like these: too few tasks to say, want %d\n", figures.MinTasks)
	} else {
		fmt.Fprintf(b, "  tasks like these: %s to %s points (95 %%)\n", points(c.TasksLikeThese[0]),
			points(c.TasksLikeThese[1]))
	}
	if c.SmallestFound == nil {
		b.WriteString("  even the largest difference could be missed in 20 % of such comparisons: " +
			"try each task more often\n")
	} else {
		fmt.Fprintf(b, "  a difference of %.1f points would be found in 80 %% of such comparisons\n",
			100**c.SmallestFound)
	}
}

func comparison(b *strings.Builder, p *figures.Pair) {
	name := schema.OneLine(p.AgentA)
	if p.AgentB != p.AgentA {
		name += " and " + schema.OneLine(p.AgentB)
	}
	if p.Difference == nil {
		fmt.Fprintf(b, "%s: no task to compare\n", name)
	} else {
		fmt.Fprintf(b, "%s: %s over %s, %s and %s\n", name, outcome(&p.Comparison),
			schema.Count(len(p.Tasks), "equal task", "equal tasks"),
			schema.Count(p.CountsA.Counted, "attempt", "attempts"),
			schema.Count(p.CountsB.Counted, "attempt", "attempts"))
		differences(b, &p.Comparison)
	}
	for _, other := range []struct {
		a, b int
		what string
		c    *figures.Comparison
	}{{p.CountsA.Suspicious, p.CountsB.Suspicious, "with suspicions", &p.WithoutSuspicions},
		{p.CountsA.Infrastructure, p.CountsB.Infrastructure, "ended by infrastructure", &p.WithInfrastructure}} {
		if other.a+other.b > 0 {
			fmt.Fprintf(b, "  %d and %s %s; if these did not pass: %s\n", other.a,
				schema.Count(other.b, "attempt", "attempts"), other.what, outcome(other.c))
		}
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
			fmt.Fprintf(b, "  %s: %s to %s\n", schema.OneLine(t.Task), percent(&t.RateA), percent(&t.RateB))
		}
	}
	for _, t := range p.Changed {
		fmt.Fprintf(b, "  not compared: %s has changed: %s\n", schema.OneLine(t.Task),
			schema.OneLine(strings.Join(t.Keys, ", ")))
	}
	for _, left := range []struct {
		names []string
		why   string
	}{{p.OnlyA, "only in the first suite"}, {p.OnlyB, "only in the second suite"},
		{p.Unrated, "an agent has no attempt that counts"}} {
		for _, name := range left.names {
			fmt.Fprintf(b, "  not compared: %s: %s\n", schema.OneLine(name), left.why)
		}
	}
	if len(p.AgentChanged) > 0 {
		fmt.Fprintf(b, "  the agents differ: %s\n", schema.OneLine(strings.Join(p.AgentChanged, ", ")))
	}
}
