package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/schema"
)

// keptFlags say whose changes are judged, and where the verdict goes.
type keptFlags struct {
	bundle, workspace, output string
	force                     bool
	redact                    redactFlags
}

// check validates the arguments together with the flags.
func (f *keptFlags) check(cmd *cobra.Command, args []string) error {
	example := "as in: assay-run contract check --bundle run.tar.gz --workspace CLEAN"
	switch {
	case f.bundle == "" && f.workspace == "" && f.output == "" && !f.force:
		return one("a contract file", "done.yaml")(cmd, args)
	case f.bundle == "" || f.workspace == "":
		return console.WithHint(errors.New("--bundle and --workspace must be used together"), "%s", example)
	case len(args) > 1:
		return console.WithHint(fmt.Errorf("one contract file at the most, got %d arguments", len(args)), "%s", example)
	case cmd.Flags().Changed("workdir"):
		return console.WithHint(errors.New("--workdir and --bundle cannot be used together"),
			"name the clean workspace with --workspace")
	}
	return nil
}

// checkSession is a cgroup session for checks without an agent.
type checkSession struct {
	*cgroup.Session
	guard *cgroup.Guard
}

func (s *checkSession) executor(dir string, set map[string]string) contract.Executor {
	env := os.Environ()
	for k, v := range set {
		env = append(env, k+"="+v)
	}
	return contract.Shell{
		Dir:   dir,
		Env:   append(env, cgroup.MarkerKey+"="+s.RunID()),
		Group: func(name string) (contract.Group, error) { return s.NewGroup(name) },
	}
}

func (s *checkSession) close() error {
	return errors.Join(s.Remove(), s.guard.Release())
}

func newCheckSession() (*checkSession, error) {
	session, err := cgroup.Probe().NewSession("check_"+strings.ToLower(schema.NewID()), cgroup.Limits{})
	if err != nil {
		return nil, err
	}
	guard, err := session.Guard(nil)
	if err != nil {
		return nil, errors.Join(err, session.Remove())
	}
	return &checkSession{session, guard}, nil
}

// printCheck prints one check's result. If the check did not pass, it also prints
// why, the end of its output, and how to run it by hand.
func printCheck(w io.Writer, c schema.Check, r schema.CheckResult) {
	took := time.Duration(r.DurationMS) * time.Millisecond
	if r.Passed {
		fmt.Fprintf(w, "passed   %s (%v)\n", schema.OneLine(c.Name), took)
		return
	}
	state := "failed"
	if !r.Ran {
		state = "not run"
	}
	fmt.Fprintf(w, "%-8s %s (%v): %s\n", state, schema.OneLine(c.Name), took, contract.Why(r))
	printIndented(w, "    ", r.OutputTail)
	printIndented(w, "    rerun: ", r.Rerun)
}

// printIndented prints text line by line, the first after label.
func printIndented(w io.Writer, label, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fields := strings.Split(line, "\t")
		for i := range fields {
			fields[i] = schema.OneLine(fields[i])
		}
		fmt.Fprintf(w, "%s%s\n", label, strings.Join(fields, "\t"))
		label = strings.Repeat(" ", len(label))
	}
}
