package judge

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive/export"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for i := range r.Judgements {
		j := &r.Judgements[i]
		fmt.Fprintf(&b, "%s: %s\n", view.Clean(j.Bundle), j.State)
		for _, v := range j.Verdicts {
			state := string(v.State)
			if v.Allowed {
				state = "unknown, allowed"
			}
			message := view.Clean(v.Message)
			if more := len(v.Gaps) - 1; more > 0 {
				message += fmt.Sprintf(" (and %s: see --format json)",
					schema.Count(more, "more reason", "more reasons"))
			}
			fmt.Fprintf(&b, "  %-8s %s: %s\n", state, view.Clean(v.Rule), message)
			for _, e := range v.Evidence {
				fmt.Fprintf(&b, "           %s\n", view.Clean(e.Text))
			}
			if v.More > 0 {
				fmt.Fprintf(&b, "           … and %d more\n", v.More)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Suites are the report as other formats hold it.
func (r *Report) Suites(bundles []*view.Bundle) []export.Suite {
	var all []export.Suite
	for i, j := range r.Judgements {
		s := export.Suite{Name: j.Bundle, RunID: j.RunID, Identity: j.Identity, Started: bundles[i].Docs.Run.StartedAt}
		if ns := bundles[i].Docs.Result.Timings.ChildNS; ns != nil {
			s.Seconds = float64(*ns) / 1e9
		}
		for _, v := range j.Verdicts {
			c := export.Case{Rule: v.Rule, Message: v.Message,
				State: map[State]export.State{Pass: export.Passed, Fail: export.Failed,
					Unknown: export.Unknown}[v.State]}
			if v.Allowed {
				c.State = export.Skipped
			}
			for _, e := range v.Evidence {
				c.Details = append(c.Details, export.Detail{Text: e.Text, Layer: e.Layer, Line: e.Line})
			}
			if v.More > 0 {
				c.Details = append(c.Details, export.Detail{Text: fmt.Sprintf("… and %d more", v.More)})
			}
			for _, g := range v.Gaps {
				c.Details = append(c.Details, export.Detail{Text: "because " + g})
			}
			s.Cases = append(s.Cases, c)
		}
		all = append(all, s)
	}
	return all
}
