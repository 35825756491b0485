//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/runner/suite/pages"
	"github.com/assay-run/assay-run/schema"
)

func (a *app) compareCommand() *cobra.Command {
	var agents []string
	var format string
	var fail bool
	cmd := &cobra.Command{
		Use:   "compare A B [flags]",
		Short: "Say whether one suite is better than another",
		Long: `compare takes the directories of two suites, A and B, and compares their agents task by task. A and B may
be the same directory. It compares only tasks that both suites define alike, and names the others. Agents of
the same name are compared, or the only agent of each suite.

It prints the difference of the mean rates over these tasks, with two intervals of 95 %: for these tasks
again, and for tasks like these, which needs five tasks. An agent is worse if the whole first interval is
below zero, and better if it is above. Equal agents are worse in less than one of 20 comparisons. It also
prints the smallest difference that 80 % of such comparisons would find, and the outcome if attempts with
suspicions, or those that infrastructure ended, did not pass.

Exit status: 0; with --fail-if-worse 1 if an agent is worse, also without suspicions, and 2 if an agent has no task to compare; 3
bad arguments.`,
		Example: "  assay-suite compare before after --fail-if-worse\n  assay-suite compare out out --agents old=new",
		Args:    exactly(2, "compare takes the directories of two suites"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "text" && format != "json" {
				return usage(cmd, fmt.Errorf("--format is %q, want text or json", format))
			}
			var of [2]*schema.SuiteResults
			for i, dir := range args {
				var err error
				if of[i], err = readResults(dir); err != nil {
					return console.ExitError{Code: suite.ExitBadInput, Err: err}
				}
			}
			named, err := paired(of[0], of[1], agents)
			if err != nil {
				return usage(cmd, err)
			}
			var pairs []*figures.Pair
			code := 0
			for _, n := range named {
				p := figures.Compare(of[0], of[1], n[0], n[1])
				pairs = append(pairs, p)
				switch {
				case p.Outcome == figures.Worse, p.WithoutSuspicions.Outcome == figures.Worse:
					code = suite.ExitFailed
				case len(p.Tasks) == 0 && code == 0:
					code = suite.ExitUndecided
				}
			}
			if format == "json" {
				err = schema.PrintDocument(a.stdout, pairs)
			} else {
				err = pages.Comparison(a.stdout, pairs)
			}
			if err == nil && fail && code != 0 {
				return console.ExitError{Code: code}
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&agents, "agents", nil, "compare an agent of the first suite with one of the second: `A=B`; may "+
		"be repeated")
	fs.BoolVar(&fail, "fail-if-worse", false, "exit with 1 if an agent is worse")
	fs.StringVar(&format, "format", "text", "write `FORMAT`: text, json")
	return cmd
}

// paired returns the names of the agents to compare: those of --agents, else those that both suites have, else the only
// one of each.
func paired(a, b *schema.SuiteResults, given []string) (pairs [][2]string, err error) {
	has := func(r *schema.SuiteResults, name string) bool {
		return slices.ContainsFunc(r.Agents, func(g schema.SuiteAgent) bool { return g.Agent == name })
	}
	for _, g := range given {
		first, second, two := strings.Cut(g, "=")
		if !two {
			second = first
		}
		switch {
		case !has(a, first):
			return nil, fmt.Errorf("--agents %s: the first suite has no agent %q", g, first)
		case !has(b, second):
			return nil, fmt.Errorf("--agents %s: the second suite has no agent %q", g, second)
		}
		pairs = append(pairs, [2]string{first, second})
	}
	if len(given) > 0 {
		return pairs, nil
	}
	for i := range a.Agents {
		if name := a.Agents[i].Agent; has(b, name) {
			pairs = append(pairs, [2]string{name, name})
		}
	}
	switch {
	case len(pairs) > 0:
		return pairs, nil
	case len(a.Agents) == 1 && len(b.Agents) == 1:
		return [][2]string{{a.Agents[0].Agent, b.Agents[0].Agent}}, nil
	}
	return nil, errors.New("the suites have no agent of the same name: name a pair with --agents A=B")
}
