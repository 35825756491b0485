package render

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// State is the state of a case.
type State string

const (
	Passed  State = "passed"
	Failed  State = "failed"
	Unknown State = "unknown" // the evidence does not say
	Skipped State = "skipped" // unknown, and allowed to be so
)

// Suite holds the cases of one bundle.
type Suite struct {
	// Name is the bundle's file.
	Name, RunID, Identity string
	// Started is the start of the run in RFC 3339, and Seconds its duration.
	Started string
	Seconds float64
	Cases   []Case
}

// Case is one thing that was judged.
type Case struct {
	// Rule is the stable name of the case.
	Rule    string
	State   State
	Message string
	Details []Detail
	// Milliseconds is the duration of the case; 0 if it has none.
	Milliseconds int64
}

// Detail is one violation, or one reason why nothing can be concluded.
type Detail struct {
	Text string
	// Layer is a member of the bundle, and Line a line in it that counts from 1; empty and 0 if unknown.
	Layer string
	Line  uint64
}

// details returns the case's details, one on a line.
func (c *Case) details() string {
	var b strings.Builder
	for _, d := range c.Details {
		b.WriteString(d.Text)
		if d.Layer != "" {
			fmt.Fprintf(&b, " (%s", d.Layer)
			if d.Line > 0 {
				fmt.Fprintf(&b, ":%d", d.Line)
			}
			b.WriteString(")")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// cut shortens s to n bytes at a character's boundary, with "…" at the end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = " …"
	end := n - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// count returns the number of cases in a state.
func count(suites []Suite, state State) (n int) {
	for _, s := range suites {
		for _, c := range s.Cases {
			if c.State == state {
				n++
			}
		}
	}
	return n
}

// newSuite returns the suite of a bundle without cases.
func newSuite(b *view.Bundle) Suite {
	s := Suite{Name: b.Name, RunID: b.RunID(), Identity: b.Identity(), Started: b.Docs.Run.StartedAt}
	if ns := b.Docs.Result.Timings.ChildNS; ns != nil {
		s.Seconds = float64(*ns) / 1e9
	}
	return s
}

// Judged converts the judgements of bundles to suites.
func Judged(r *judge.Report, bundles []*view.Bundle) []Suite {
	var all []Suite
	for i, j := range r.Judgements {
		s := newSuite(bundles[i])
		for _, v := range j.Verdicts {
			c := Case{Rule: v.Rule, Message: v.Message,
				State: map[judge.State]State{judge.Pass: Passed, judge.Fail: Failed,
					judge.Unknown: Unknown}[v.State]}
			if v.Allowed {
				c.State = Skipped
			}
			for _, e := range v.Evidence {
				c.Details = append(c.Details, Detail{Text: e.Text, Layer: e.Layer, Line: e.Line})
			}
			if v.More > 0 {
				c.Details = append(c.Details, Detail{Text: fmt.Sprintf("… and %d more", v.More)})
			}
			for _, g := range v.Gaps {
				c.Details = append(c.Details, Detail{Text: "because " + g})
			}
			s.Cases = append(s.Cases, c)
		}
		all = append(all, s)
	}
	return all
}

// suite returns the cases of a bundle that was not judged by rules: how the run ended, each check of its outcome
// contract, each call, and whether all programs, files and hosts were observed.
func suite(b *view.Bundle) Suite {
	d := b.Docs
	s := newSuite(b)
	s.Cases = append(s.Cases, ended(d.Result))
	if d.Contract != nil {
		for i := range d.Contract.Results {
			s.Cases = append(s.Cases, checked(&d.Contract.Results[i]))
		}
	}
	s.Cases = append(s.Cases, calls(&d.Correlation)...)
	for _, about := range []view.Subject{view.Programs, view.Files, view.Hosts} {
		c := Case{Rule: "observed/" + string(about), State: Passed, Message: "all " + string(about) + " were observed"}
		for _, g := range view.Claim(d, about) {
			c.State, c.Message = Unknown, "not all "+string(about)+" were observed"
			c.Details = append(c.Details, Detail{Text: g.Text, Layer: schema.HealthPath})
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}

func ended(r schema.Result) Case {
	c := Case{Rule: "run/ended_with_0", State: Failed, Message: "the run did not exit with 0: " + r.Outcome}
	switch {
	case r.Outcome == schema.OutcomeIncomplete:
		c.State, c.Message = Unknown, "the run was interrupted: its end was not recorded"
	case r.ExitCode != nil:
		c.Message = fmt.Sprintf("%s with %d", r.Outcome, *r.ExitCode)
		if r.Outcome == schema.OutcomeExited && *r.ExitCode == 0 {
			c.State = Passed
		}
	case r.Signal != nil:
		c.Message = r.Outcome + " by " + *r.Signal
	}
	c.Details = []Detail{{Text: c.Message, Layer: schema.ResultPath}}
	return c
}

func checked(r *schema.CheckResult) Case {
	c := Case{Rule: "contract/" + r.Name, State: Failed, Message: "the check failed", Milliseconds: r.DurationMS}
	switch {
	case r.Passed:
		c.State, c.Message = Passed, "the check passed"
	case !r.Ran:
		c.State, c.Message = Unknown, "the check could not be run"
	}
	if tail := strings.TrimSpace(r.OutputTail); tail != "" && c.State != Passed {
		c.Details = []Detail{{Text: tail, Layer: schema.ContractPath}}
	}
	return c
}

var beyond = map[string]string{
	"beyond_claim": "the call did more than its tool's name says",
	"denied_call":  "policy denied the call, and it did something",
	"unknown_call": "processes named a call that nobody reported",
}

func calls(r *schema.CorrelationReport) []Case {
	var cases []Case
	over := map[string]*schema.Unreported{}
	for i, u := range r.ObservedNotReported {
		for _, id := range u.ToolCallIDs {
			if beyond[u.Code] != "" {
				over[id] = &r.ObservedNotReported[i]
			}
		}
	}
	for i := range r.Bindings {
		b := &r.Bindings[i]
		c := Case{Rule: strings.TrimSpace("call/" + b.Tool + " " + b.ToolCallID), State: Passed,
			Message: "what it did is within what it claimed"}
		if u := over[b.ToolCallID]; u != nil {
			c.State, c.Message = Failed, beyond[u.Code]
			for verb, list := range map[string][]string{"wrote ": u.Written, "contacted ": u.Hosts,
				"ran ": u.Commands} {
				for _, what := range list {
					c.Details = append(c.Details, Detail{Text: verb + what, Layer: schema.CorrelationPath})
				}
			}
			slices.SortFunc(c.Details, func(a, b Detail) int { return strings.Compare(a.Text, b.Text) })
		} else if b.PolicyDecision == "deny" {
			c.State, c.Message = Skipped, "policy denied it"
		}
		cases = append(cases, c)
	}
	return cases
}

var notJudged = []string{"the events, processes and output themselves",
	"what was done outside of every tool call (correlation-report.json)", "resource use and limits"}

func suites(bundles []*view.Bundle) []Suite {
	var all []Suite
	for _, b := range bundles {
		all = append(all, suite(b))
	}
	return all
}

func junit(_ context.Context, w io.Writer, _ string, bundles []*view.Bundle) ([]string, error) {
	return notJudged, WriteJUnit(w, suites(bundles))
}

func ctrf(_ context.Context, w io.Writer, version string, bundles []*view.Bundle) ([]string, error) {
	return notJudged, WriteCTRF(w, version, suites(bundles))
}

func sarif(_ context.Context, w io.Writer, version string, bundles []*view.Bundle) ([]string, error) {
	return notJudged, WriteSARIF(w, version, suites(bundles))
}
