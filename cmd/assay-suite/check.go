//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/schema"
)

func (a *app) checkCommand() *cobra.Command {
	f := &runFlags{lease: suite.DefaultLease}
	var start, oracle, nop bool
	cmd := &cobra.Command{
		Use:   "check (SUITE.yaml | --tasks DIR) [flags]",
		Short: "Check a suite file and every file that it names",
		Long: `check makes the checks that run makes first: it reads a suite file with its contracts, policies and
rules, looks for the programs that it names, and reads the workspaces: can each attempt get a whole copy?
It runs nothing, unless it is asked to try the tasks themselves. --start starts each task once, as for its
first agent, with a command that does nothing: a copy of the workspace, the policy, limits, the containers'
engine, the model gateway. --oracle runs each task's solution, which must pass. --nop does nothing at each task,
which must fail. Otherwise the task is broken.

With --tasks, check reads folders in the format of Harbor. It prints the evaluation of each task that it accepts, and
says why it refuses the others. --start then makes each image, and starts a container of it.

Exit status: 0; 1 a task is broken; 2 the machine failed, or a verdict is inconclusive; 3 the file is bad.`,
		Example: "  assay-suite check suite.yaml\n  assay-suite check suite.yaml --oracle --nop --jobs 4",
		Args: func(cmd *cobra.Command, args []string) error {
			switch err := f.folderFlags.check(args); {
			case err != nil:
				return usage(cmd, err)
			case f.jobs < 1:
				return usage(cmd, fmt.Errorf("--jobs %d: give 1 or more", f.jobs))
			case f.dir != "" && !oracle && !nop:
				return usage(cmd, errors.New("--dir needs --oracle or --nop: without them check keeps no bundles"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := f.folderFlags.read(args)
			if f.tasks != "" {
				a.printFolders(s, err)
			}
			if err != nil {
				return console.ExitError{Code: suite.ExitBadInput, Err: err}
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s, %s, %s\n", s.Name, schema.Count(len(s.Tasks), "task", "tasks"),
				schema.Count(len(s.Agents), "agent", "agents"), schema.Count(len(s.Attempted()), "attempt", "attempts"))
			for _, note := range s.Notes() {
				a.say.Info("%s", note)
			}
			if err == nil && start {
				err = a.start(s.StartTrial(), f)
			}
			if err != nil || !oracle && !nop {
				return err
			}
			return a.try(s.Trial(oracle, nop), oracle, f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.folderFlags.bind(fs)
	fs.BoolVar(&start, "start", false, "start each task once, with a command that does nothing")
	fs.BoolVar(&oracle, "oracle", false, "run each task's solution: if it does not pass, the task is broken")
	fs.BoolVar(&nop, "nop", false, "do nothing at each task: if that passes, the task is broken")
	fs.IntVar(&f.jobs, "jobs", max(1, runtime.NumCPU()/2), "run `N` tasks at once")
	fs.StringVar(&f.dir, "dir", "",
		"keep the bundles of --oracle and --nop in `DIR` (default: keep them only if a task is broken)")
	fs.StringVar(&f.program, "assay-run", "",
		"run tasks with the assay-run at `PATH` (default: beside this program, or in PATH)")
	return cmd
}

// printFolders prints which tasks are accepted, and what of their evaluation follows from the folders. The refused ones
// are in err.
func (a *app) printFolders(s *suite.File, err error) {
	if s == nil {
		return
	}
	derived := s.Derived()
	for _, t := range s.Tasks {
		e := derived[t.Name]
		fmt.Fprintf(a.stdout, "%s: accepted; workspace: %s; hidden: %s; reward: %s; deliverables: %s", t.Name,
			cmp.Or(strings.Join(e.Workspace, " "), "as the image says"), strings.Join(e.Hidden, " "),
			strings.Join(e.Reward, " "), cmp.Or(strings.Join(e.Deliverables, " "), "none named"))
		if len(e.Servers) > 0 {
			fmt.Fprint(a.stdout, "; judged in place, beside its servers")
		}
		fmt.Fprintln(a.stdout)
	}
	refused := 0
	var all *suite.Refused
	if errors.As(err, &all) {
		refused = len(all.Causes)
	}
	fmt.Fprintf(a.stdout, "%d accepted, %d refused\n", len(s.Tasks), refused)
}

// start starts each task, and says which cannot be started.
func (a *app) start(s *suite.File, f *runFlags) error {
	program, err := findProgram(f.program)
	if err != nil {
		return console.ExitError{Code: suite.ExitBadInput, Err: err}
	}
	dir, err := os.MkdirTemp("", "assay-suite-start-*")
	if err != nil {
		return err
	}
	results, err := a.quiet().complete(s, dir, program, f)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	code := 0
	for i := range results.Attempts {
		switch at := &results.Attempts[i]; {
		case at.Verdict == nil:
			a.say.Warning("%s was not started, because the check was interrupted", at.Task)
			code = worse(code, suite.ExitInterrupted)
		case *at.Verdict == schema.SuitePassed:
			a.say.Info("%s: it starts", at.Task)
		default:
			a.say.Error("the task %s does not start: %s", at.Task, at.Reason)
			code = worse(code, suite.ExitUndecided)
		}
	}
	if code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}

// quiet only prints warnings: suspicions.
func (a *app) quiet() *app {
	quiet := *a
	quiet.say = console.New("assay-suite", a.stderr)
	quiet.say.Quiet = true
	return &quiet
}

// try runs a trial of the tasks, and names those that are broken.
func (a *app) try(s *suite.File, oracle bool, f *runFlags) error {
	program, err := findProgram(f.program)
	if err != nil {
		return console.ExitError{Code: suite.ExitBadInput, Err: err}
	}
	dir := f.dir
	if dir == "" {
		dir, err = os.MkdirTemp("", "assay-suite-check-*")
	}
	if err == nil {
		dir, err = suite.RealPath(dir)
	}
	if err != nil {
		return err
	}
	results, err := a.quiet().complete(s, dir, program, f)
	if err != nil {
		return err
	}
	without := map[string]bool{}
	for _, t := range s.Tasks {
		without[t.Name] = t.Solution == ""
	}
	code := 0
	for _, t := range s.Tasks {
		if oracle && without[t.Name] {
			a.say.Warning("%s has no solution: --oracle skips it", t.Name)
		}
		for i := range results.Attempts {
			if at := &results.Attempts[i]; at.Task == t.Name {
				code = worse(code, a.printTrial(dir, at))
			}
		}
	}
	switch {
	case f.dir != "":
	case code == 0:
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	default:
		a.say.Info("the bundles are kept in %s: remove it when you are done", dir)
	}
	if code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}

// worse returns the more serious of two exit statuses: interrupted, then broken, then undecided.
func worse(a, b int) int {
	if a == suite.ExitInterrupted || b == suite.ExitInterrupted {
		return suite.ExitInterrupted
	}
	if a == 0 || b == 0 {
		return cmp.Or(a, b)
	}
	return min(a, b)
}

// printTrial prints whether an attempt of a trial has the verdict that it must have, and returns the exit status.
func (a *app) printTrial(dir string, at *schema.SuiteAttempt) int {
	what, must := "doing nothing", schema.SuiteFailed
	if at.Agent == suite.Oracle {
		what, must = "its solution", schema.SuitePassed
	}
	switch {
	case at.Verdict == nil:
		a.say.Warning("%s: %s was not tried, because the check was interrupted", at.Task, what)
		return suite.ExitInterrupted
	case *at.Verdict == must:
		a.say.Info("%s: %s %s, as it should", at.Task, what, *at.Verdict)
		return 0
	case *at.Verdict == schema.SuitePassed, *at.Verdict == schema.SuiteFailed:
		reason := ""
		if at.Reason != "" {
			reason = ": " + at.Reason
		}
		a.say.Error("the task %s is broken: %s %s%s", at.Task, what, *at.Verdict, reason)
		if at.Bundle != "" {
			bundle := filepath.Join(dir, at.Bundle)
			for _, said := range failedChecks(bundle) {
				a.say.Info("  %s", said)
			}
			a.say.Info("  inspect it with: assay-run inspect %s", bundle)
		}
		return suite.ExitFailed
	}
	a.say.Warning("%s: with %s the verdict is %s: %s", at.Task, what, *at.Verdict, at.Reason)
	return suite.ExitUndecided
}
