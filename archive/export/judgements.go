package export

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// suite is a bundle as a list of cases: how the run ended, each check of its
// outcome contract, each call that policy denied or that did more than it
// claimed, and what the health does not support.
func suite(b *view.Bundle) Suite {
	d := b.Docs
	s := Suite{Name: b.Name, RunID: b.RunID(), Identity: b.Identity(), Started: d.Run.StartedAt}
	if ns := d.Result.Timings.ChildNS; ns != nil {
		s.Seconds = float64(*ns) / 1e9
	}
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
			SortDetails(c.Details)
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
