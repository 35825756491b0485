package view

import (
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Sentence is one statement about a run, or about what is not known of it.
type Sentence struct {
	// Good is true if the sentence states no limit.
	Good bool   `json:"good"`
	Text string `json:"text"`
	// About is what the sentence is about; empty for one that is about something else than the subjects of Claim.
	About Subject `json:"-"`
	// Why are the gaps behind a limit, and Remedy what would close them.
	Why    []string `json:"why,omitempty"`
	Remedy string   `json:"remedy,omitempty"`
}

// Sentences says what the bundle's health means for a reader.
func Sentences(d *archive.Documents) []Sentence {
	var all []Sentence
	for _, s := range []struct {
		about      Subject
		good, less string
	}{
		{Programs, "Every program that the run executed is listed.",
			"Programs may have been executed that are not listed."},
		{Files, "Every file that the run opened or changed is listed, within the known blind spots.",
			"Files may have been opened or changed that are not listed."},
		{Hosts, "Every host that the run talked to is listed.",
			"The run may have talked to hosts that are not listed."},
	} {
		if gaps := Claim(d, s.about); len(gaps) > 0 {
			all = append(all, Sentence{About: s.about, Text: s.less, Why: texts(gaps), Remedy: gaps[0].Remedy})
		} else {
			all = append(all, Sentence{About: s.about, Good: true, Text: s.good})
		}
	}
	told := calls(d)
	if !NoReports(d) {
		told.About = Calls
	}
	all = append(all, told)
	if d.Result.Outcome == schema.OutcomeIncomplete {
		all = append(all, Sentence{Text: "The run was interrupted, and what came after is not known."})
	}
	for _, r := range d.Health.Reasons {
		if r.Subject != "kernel" && r.Subject != "cgroup" && r.Subject != "surface" {
			all = append(all, Sentence{Text: r.Message, Remedy: r.Remedy})
		}
	}
	return all
}

func calls(d *archive.Documents) Sentence {
	gaps := Claim(d, Calls)
	n := len(d.Correlation.Bindings)
	reported := schema.Count(n, "tool call was reported", "tool calls were reported")
	var failed []string
	for _, b := range d.Correlation.Bindings {
		if b.Failed {
			failed = append(failed, strings.TrimSpace(b.ToolCallID+" "+b.Tool))
		}
	}
	if len(failed) > 0 {
		reported += fmt.Sprintf(" (%d failed: %s)", len(failed), Cut(strings.Join(failed, ", "), 120))
	}
	switch {
	case n == 0 && NoReports(d):
		return Sentence{Good: true, Text: "Nobody reported tool calls: what was done is not told apart by call."}
	case n == 0 && len(gaps) == 0:
		return Sentence{Good: true, Text: "No tool calls were reported."}
	case n == 0:
		return Sentence{Text: "Tool calls are not known.", Why: texts(gaps), Remedy: gaps[0].Remedy}
	case len(gaps) > 0:
		return Sentence{Text: reported + "; what each of them did is known in part.", Why: texts(gaps)}
	case len(d.Correlation.ReportedNotObserved) > 0:
		unseen := d.Correlation.ReportedNotObserved
		return Sentence{Text: reported + "; what each of them did is known in part.",
			Why: []string{fmt.Sprintf("nothing was observed of %s, the first of them %s (%s)",
				schema.Count(len(unseen), "call", "calls"), unseen[0].ToolCallID,
				strings.ReplaceAll(unseen[0].Code, "_", " "))}}
	}
	return Sentence{Good: true, Text: reported + ", and what each of them did is known."}
}

func texts(gaps []Gap) (all []string) {
	for _, g := range gaps {
		all = append(all, g.Text)
	}
	return all
}

// remedy returns the health's advice about a subject; empty if there is none.
func remedy(h *schema.ObservationHealth, subject string) string {
	for _, r := range h.Reasons {
		if r.Subject == subject && r.Remedy != "" {
			return r.Remedy
		}
	}
	switch subject {
	case "kernel", "cgroup", "network":
		return "assay-run doctor says what this host can observe"
	}
	return ""
}
