//go:build linux

package suite

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/schema"
)

// Results are the results of the suite so far.
func (c *Coordinator) Results() *schema.SuiteResults {
	r := &schema.SuiteResults{Schema: schema.SuiteResultsV0, Suite: c.File.Name, Attempts: []schema.SuiteAttempt{},
		Cells: []schema.SuiteCell{}, Agents: []schema.SuiteAgent{}, Flaky: []string{},
		Definitions: c.asks.Definitions}
	for _, a := range c.attempts {
		r.Attempts = append(r.Attempts, c.result(a))
	}
	of := map[cell][]*schema.SuiteAttempt{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		of[cell{a.Task, a.Agent}] = append(of[cell{a.Task, a.Agent}], a)
	}
	for _, t := range c.File.Tasks {
		for _, a := range c.File.Agents {
			if !c.File.excluded(t.Name, a.Name) {
				r.Cells = append(r.Cells, cellFigures(t.Name, a.Name, of[cell{t.Name, a.Name}]))
			}
		}
	}
	for _, cell := range r.Cells {
		if cell.Passed > 0 && cell.Passed < cell.Passed+cell.Failed+cell.Inconclusive {
			r.Flaky = append(r.Flaky, cell.Task+"/"+cell.Agent)
		}
	}
	for _, a := range c.File.Agents {
		r.Agents = append(r.Agents, agentFigures(a.Name, r))
	}
	r.Hosts = slices.Collect(maps.Keys(c.hosts))
	slices.SortFunc(r.Hosts, func(a, b schema.SuiteHost) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.AssayRun, b.AssayRun),
			cmp.Compare(a.Kernel, b.Kernel),
			cmp.Compare(a.AgentDigest, b.AgentDigest))
	})
	return r
}

// Counts counts the attempts by their verdicts.
func (c *Coordinator) Counts() (all schema.SuiteRates) {
	for _, a := range c.attempts {
		r := schema.SuiteAttempt{}
		if v := a.verdict; v != nil && a.open == nil && !c.wants(a) {
			r.Verdict = &v.Verdict
		}
		for _, t := range a.tries {
			r.Suspicions = append(r.Suspicions, t.Suspicions...)
		}
		all.Add(&r)
	}
	return all
}

func (c *Coordinator) result(a *attempt) schema.SuiteAttempt {
	r := schema.SuiteAttempt{ID: a.String(), Task: a.Task, Agent: a.Agent, Attempt: a.Attempt.Attempt,
		Identity: c.asks.Identities[a.Attempt], Tries: append([]schema.SuiteTry{}, a.tries...),
		Suspicions: []schema.Finding{}, Unknown: []string{}}
	if v := a.verdict; v != nil && v.Class != schema.SuiteInterrupted && v.Class != schema.SuiteNotBegun {
		r.Verdict, r.Reason, r.Bundle = &v.Verdict, v.Reason, v.Bundle
		r.Unknown = append(r.Unknown, v.Unknown...)
	} else if last := c.stopped(a); last != nil && a.open == nil {
		r.Verdict = new(schema.SuiteInfrastructure)
		r.Reason = fmt.Sprintf("it was not tried: the machine failed %d times in a row (%s: %s)", alike, last.Class,
			last.Reason)
	}
	for _, t := range a.tries { // what an agent did in an earlier try counts too
		r.Suspicions = append(r.Suspicions, t.Suspicions...)
	}
	return r
}

// cellFigures are the figures of an agent at a task, which has the attempts.
func cellFigures(task, agent string, attempts []*schema.SuiteAttempt) schema.SuiteCell {
	c := schema.SuiteCell{Task: task, Agent: agent, PassAt: []float64{}, PassHat: []float64{}}
	clean := 0 // passed without suspicions
	var sums sums
	for _, a := range attempts {
		c.Add(a)
		if a.Verdict == nil || *a.Verdict == schema.SuiteInfrastructure {
			continue
		}
		if *a.Verdict == schema.SuitePassed && len(a.Suspicions) == 0 {
			clean++
		}
		last := &a.Tries[len(a.Tries)-1]
		sums.add(last.Seconds, last.Tokens, last.Cost)
	}
	c.Seconds, c.Tokens, c.Cost = sums.seconds, sums.tokens, sums.cost
	n := c.Passed + c.Failed + c.Inconclusive
	if n > 0 {
		in := figures.Wilson(c.Passed, n)
		c.Rate, c.CI95 = new(float64(c.Passed)/float64(n)), &[2]float64{in.Low, in.High}
		c.RateWithoutSuspicions = new(float64(clean) / float64(n))
	}
	if all := n + c.Infrastructure; all > 0 {
		c.RateWithInfrastructure = new(float64(c.Passed) / float64(all))
	}
	for k := 1; k <= n; k++ {
		at, _ := figures.PassAt(k, c.Passed, n)
		hat, _ := figures.PassHat(k, c.Passed, n)
		c.PassAt, c.PassHat = append(c.PassAt, at), append(c.PassHat, hat)
	}
	return c
}

// agentFigures are means over the tasks of an agent that have a rate.
func agentFigures(agent string, r *schema.SuiteResults) schema.SuiteAgent {
	f := schema.SuiteAgent{Agent: agent}
	var rates, with, without []float64
	var sums sums
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Agent != agent {
			continue
		}
		f.Tasks++
		f.Attempts += c.Attempts
		f.Passed += c.Passed
		f.Failed += c.Failed
		f.Inconclusive += c.Inconclusive
		f.Infrastructure += c.Infrastructure
		f.Pending += c.Pending
		f.Suspicious += c.Suspicious
		if c.Passed+c.Failed+c.Inconclusive > 0 {
			sums.add(c.Seconds, c.Tokens, c.Cost)
		}
		if c.Rate != nil {
			rates, without = append(rates, *c.Rate), append(without, *c.RateWithoutSuspicions)
		}
		if c.RateWithInfrastructure != nil {
			with = append(with, *c.RateWithInfrastructure)
		}
	}
	if len(rates) > 0 {
		f.Rate = new(figures.Mean(rates))
		if len(rates) > 1 {
			in := figures.MeanInterval(rates)
			f.CI95 = &[2]float64{in.Low, in.High}
		}
		f.RateWithoutSuspicions = new(figures.Mean(without))
	}
	if len(with) > 0 {
		f.RateWithInfrastructure = new(figures.Mean(with))
	}
	f.Seconds, f.Tokens, f.Cost = sums.seconds, sums.tokens, sums.cost
	return f
}

// sums are sums that are nil when a part is not known, or there is none.
type sums struct {
	parts   int
	seconds *float64
	tokens  *int64
	cost    *float64
}

func (s *sums) add(seconds *float64, tokens *int64, cost *float64) {
	s.seconds, s.tokens = plus(s.parts, s.seconds, seconds), plus(s.parts, s.tokens, tokens)
	s.cost = plus(s.parts, s.cost, cost)
	s.parts++
}

// plus is the sum of so many parts and one more.
func plus[N int64 | float64](parts int, sum, more *N) *N {
	switch {
	case more == nil:
		return nil
	case parts == 0:
		return new(*more)
	case sum == nil:
		return nil
	}
	return new(*sum + *more)
}

// Exit codes of a suite.
const (
	ExitFailed      = 1
	ExitUndecided   = 2
	ExitBadInput    = 3
	ExitInterrupted = 130
)

// ExitCode is what a command line exits with: 0 if all attempts passed.
func ExitCode(r *schema.SuiteResults) int {
	verdict := func(of string) bool {
		return slices.ContainsFunc(r.Attempts, func(a schema.SuiteAttempt) bool {
			return a.Verdict != nil && *a.Verdict == of
		})
	}
	switch {
	case slices.ContainsFunc(r.Attempts, func(a schema.SuiteAttempt) bool { return a.Verdict == nil }):
		return ExitInterrupted
	case verdict(schema.SuiteFailed):
		return ExitFailed
	case verdict(schema.SuiteInconclusive), verdict(schema.SuiteInfrastructure):
		return ExitUndecided
	}
	return 0
}
