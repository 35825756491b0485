package schema

import (
	"fmt"
	"strings"
	"time"
)

// Ending says in a few words how the run went, such as "exited 0 after 67ms".
// run gives the limits that may have ended it.
func (r *Result) Ending(run *Run) string {
	var took time.Duration
	if ns := r.Timings.ChildNS; ns != nil {
		took = time.Duration(*ns).Round(time.Millisecond)
	}
	switch r.Outcome {
	case OutcomeExited:
		if r.ExitCode != nil {
			return fmt.Sprintf("exited %d after %v", *r.ExitCode, took)
		}
	case OutcomeSignaled:
		if r.Signal != nil {
			return fmt.Sprintf("ended by %s after %v", *r.Signal, took)
		}
	case OutcomeTimeout:
		if limit := time.Duration(run.TimeoutMS) * time.Millisecond; limit > 0 {
			took = limit
		}
		return fmt.Sprintf("timed out after %v", took)
	case OutcomeOOM:
		if r.Limits.MemoryBytes > 0 {
			return fmt.Sprintf("killed: out of memory (limit %s)", wholeSize(r.Limits.MemoryBytes))
		}
		return "killed: out of memory"
	case OutcomeInfraError:
		return "not run"
	case OutcomeIncomplete:
		return "incomplete: the recorder ended before the run"
	}
	if r.Timings.ChildNS == nil {
		return strings.ReplaceAll(r.Outcome, "_", " ")
	}
	return fmt.Sprintf("%s after %v", strings.ReplaceAll(r.Outcome, "_", " "), took)
}

// Summaries are the results of the checks in short.
func (c *Contract) Summaries() []CheckSummary {
	all := make([]CheckSummary, len(c.Results))
	for i, r := range c.Results {
		s := CheckSummary{Name: r.Name, Result: CheckFailed, ExitCode: r.ExitCode, TimedOut: r.TimedOut}
		switch {
		case !r.Ran:
			s.Result = CheckNotRun
		case r.Passed:
			s.Result = CheckPassed
		}
		s.GatesNothing = r.GatesNothing != nil && *r.GatesNothing
		for _, f := range r.InfluencedBy {
			if s.Influences == nil {
				s.Influences = map[string]int{}
			}
			s.Influences[f.Kind]++
		}
		all[i] = s
	}
	return all
}

// wholeSize writes bytes in the largest unit that has no fraction, such as 50 MiB.
func wholeSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for n != 0 && n%1024 == 0 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return fmt.Sprintf("%d %s", n, units[unit])
}
