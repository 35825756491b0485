package gate

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/review"
	"github.com/assay-run/assay-run/archive/review/findings"
)

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for i := range r.Judgements {
		j := &r.Judgements[i]
		fmt.Fprintf(&b, "%s: %s\n", query.Clean(j.Bundle), j.State)
		for _, v := range j.Verdicts {
			state := string(v.State)
			if v.Allowed {
				state = "unknown, allowed"
			}
			fmt.Fprintf(&b, "  %-8s %s: %s\n", state, query.Clean(v.Rule), query.Clean(v.Message))
			for _, e := range v.Evidence {
				fmt.Fprintf(&b, "           %s\n", query.Clean(e.Text))
			}
			if v.More > 0 {
				fmt.Fprintf(&b, "           … and %d more\n", v.More)
			}
			for _, g := range v.Gaps {
				fmt.Fprintf(&b, "           because %s\n", query.Clean(g))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Suites are the report as other formats hold it.
func (r *Report) Suites(bundles []*review.Bundle) []findings.Suite {
	var all []findings.Suite
	for i, j := range r.Judgements {
		s := findings.Suite{Name: j.Bundle, RunID: j.RunID, Identity: j.Identity, Started: bundles[i].Docs.Run.StartedAt}
		if ns := bundles[i].Docs.Result.Timings.ChildNS; ns != nil {
			s.Seconds = float64(*ns) / 1e9
		}
		for _, v := range j.Verdicts {
			c := findings.Case{Rule: v.Rule, Message: v.Message, State: map[State]findings.State{Pass: findings.Passed, Fail: findings.Failed, Unknown: findings.Unknown}[v.State]}
			if v.Allowed {
				c.State = findings.Skipped
			}
			for _, e := range v.Evidence {
				c.Details = append(c.Details, findings.Detail{Text: e.Text, Layer: e.Layer, Line: e.Line})
			}
			if v.More > 0 {
				c.Details = append(c.Details, findings.Detail{Text: fmt.Sprintf("… and %d more", v.More)})
			}
			for _, g := range v.Gaps {
				c.Details = append(c.Details, findings.Detail{Text: "because " + g})
			}
			s.Cases = append(s.Cases, c)
		}
		all = append(all, s)
	}
	return all
}
