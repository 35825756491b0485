package judge

import (
	"fmt"
	"io"
	"strings"

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
