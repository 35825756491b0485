//go:build linux

package suite

import (
	"slices"

	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/schema"
)

// cellFigures computes the figures of an agent at a task from its attempts there.
func cellFigures(task, agent string, attempts []*schema.SuiteAttempt) schema.SuiteCell {
	c := schema.SuiteCell{Task: task, Agent: agent, PassAt: []float64{}, PassHat: []float64{}}
	clean := 0 // attempts that passed without suspicions
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

// agentFigures computes the figures of an agent from its cells in r: sums of counts, and means of the rates that exist.
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

// sums adds up seconds, tokens and costs. A sum is nil if a summand is unknown, or if there is none.
type sums struct {
	n       int // summands so far
	seconds *float64
	tokens  *int64
	cost    *float64
}

func (s *sums) add(seconds *float64, tokens *int64, cost *float64) {
	s.seconds, s.tokens = plus(s.n, s.seconds, seconds), plus(s.n, s.tokens, tokens)
	s.cost = plus(s.n, s.cost, cost)
	s.n++
}

// plus adds one more summand to the sum of n.
func plus[N int64 | float64](n int, sum, more *N) *N {
	switch {
	case more == nil:
		return nil
	case n == 0:
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

// ExitCode is the exit code for the results: 0 if all attempts passed.
func ExitCode(r *schema.SuiteResults) int {
	has := func(verdict string) bool {
		return slices.ContainsFunc(r.Attempts, func(a schema.SuiteAttempt) bool {
			return a.Verdict != nil && *a.Verdict == verdict
		})
	}
	switch {
	case slices.ContainsFunc(r.Attempts, func(a schema.SuiteAttempt) bool { return a.Verdict == nil }):
		return ExitInterrupted
	case has(schema.SuiteFailed):
		return ExitFailed
	case has(schema.SuiteInconclusive), has(schema.SuiteInfrastructure):
		return ExitUndecided
	}
	return 0
}
