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
	var sums sums
	for _, a := range attempts {
		c.Add(a)
		if a.Verdict == nil || *a.Verdict == schema.SuiteInfrastructure {
			continue
		}
		last := &a.Tries[len(a.Tries)-1]
		sums.add(last.Seconds, last.Tokens, last.Cost)
	}
	c.Seconds, c.Tokens, c.Cost = sums.seconds, sums.tokens, sums.cost
	setRates(&c.SuiteRates, []schema.SuiteCell{c})
	n := figures.Counted(&c).N
	for k := 1; k <= n; k++ {
		at, _ := figures.PassAt(k, c.Passed, n)
		hat, _ := figures.PassHat(k, c.Passed, n)
		c.PassAt, c.PassHat = append(c.PassAt, at), append(c.PassHat, hat)
	}
	return c
}

// setRates computes the rates in r from the cells that it is about. It returns those that the rate counts.
func setRates(r *schema.SuiteRates, cells []schema.SuiteCell) (counted []figures.Cell) {
	var with, without, closed []figures.Cell
	books := 0
	for i := range cells {
		if c := figures.Counted(&cells[i]); c.N > 0 {
			counted, without = append(counted, c), append(without, figures.WithoutSuspicions(&cells[i]))
			closed = append(closed, figures.Cell{Passed: cells[i].PassedClosed, N: c.N})
		}
		books += cells[i].Closed + cells[i].Open
		if c := figures.WithInfrastructure(&cells[i]); c.N > 0 {
			with = append(with, c)
		}
	}
	r.Rate, r.RateWithInfrastructure, r.RateWithoutSuspicions = figures.Rate(counted), figures.Rate(with),
		figures.Rate(without)
	if books > 0 {
		r.RateClosed = figures.Rate(closed)
	}
	r.TheseTasksAgain = ends(figures.TheseTasksAgain(counted))
	return counted
}

func ends(in *figures.Interval) *[2]float64 {
	if in == nil {
		return nil
	}
	return &[2]float64{in.Low, in.High}
}

// agentFigures computes the figures of an agent from its cells in r.
func agentFigures(agent string, r *schema.SuiteResults) schema.SuiteAgent {
	f := schema.SuiteAgent{Agent: agent}
	var of []schema.SuiteCell
	var sums sums
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Agent != agent {
			continue
		}
		of = append(of, *c)
		f.Tasks++
		f.Attempts += c.Attempts
		f.Passed += c.Passed
		f.Failed += c.Failed
		f.Inconclusive += c.Inconclusive
		f.Infrastructure += c.Infrastructure
		f.Pending += c.Pending
		f.Suspicious += c.Suspicious
		f.PassedSuspicious += c.PassedSuspicious
		f.PassedUnusual += c.PassedUnusual
		f.Closed += c.Closed
		f.Open += c.Open
		f.PassedClosed += c.PassedClosed
		if figures.Counted(c).N > 0 {
			sums.add(c.Seconds, c.Tokens, c.Cost)
		}
	}
	counted := setRates(&f.SuiteRates, of)
	f.Counted, f.TasksLikeThese = len(counted), ends(figures.TasksLikeThese(counted))
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
