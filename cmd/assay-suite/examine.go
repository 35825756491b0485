//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/suite"
)

// examine verifies a bundle and applies the rules for evaluations to it, and the task's own rules if it has some.
func examine(ctx context.Context, e suite.Exam) (*suite.Examined, error) {
	rules, err := judge.EvaluationRules("")
	if err != nil {
		return nil, err
	}
	defer rules.Close()
	reading := rules.Reading()
	if e.Rules != "" {
		reading.Without = nil // the task's own rules may use every part of a bundle
	}
	set, err := view.Open(ctx, []string{e.Bundle}, reading)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	b := set.Bundles[0]
	found := &suite.Examined{RunID: b.RunID(), Identity: b.Identity(), Labels: b.Docs.Run.Labels,
		Result: &b.Docs.Result}
	if def := b.Docs.Evaluation; def != nil && e.Evaluation != nil {
		def.Evaluation = e.Evaluation(def.Evaluation)
	}
	if e.Rules != "" {
		if found.Broken, err = broken(ctx, b, e.Rules); err != nil {
			return nil, err
		}
	}
	report, err := judge.Judge(ctx, rules, set.Bundles)
	if err != nil {
		return nil, err
	}
	for _, v := range report.Judgements[0].Verdicts {
		found.Suspicions = append(found.Suspicions, v.Findings...)
		if v.State == judge.Unknown {
			found.Unknown = append(found.Unknown, v.Rule)
		}
	}
	return found, nil
}

// checkRules reports whether a file of rules can be loaded.
func checkRules(file string) error {
	rules, err := judge.LoadRules(context.Background(), file)
	if err != nil {
		return err
	}
	rules.Close()
	return nil
}

// broken lists the rules of a file that a bundle does not pass; empty if it passes all.
func broken(ctx context.Context, b *view.Bundle, file string) (string, error) {
	rules, err := judge.LoadRules(ctx, file)
	if err != nil {
		return "", err
	}
	defer rules.Close()
	report, err := judge.Judge(ctx, rules, []*view.Bundle{b})
	if err != nil {
		return "", err
	}
	var all []string
	for _, v := range report.Judgements[0].Verdicts {
		if !v.Passes() {
			all = append(all, fmt.Sprintf("the rule %s does not pass: %s", v.Rule, v.Message))
		}
	}
	return strings.Join(all, "; "), nil
}

// contractCheck returns a function that judges a bundle's workspace by a contract. program is the path of assay-run.
func contractCheck(program string) func(context.Context, suite.ContractCheck) error {
	return func(ctx context.Context, c suite.ContractCheck) error {
		cmd := exec.CommandContext(ctx, program, "contract", "check", "--bundle", c.Bundle, "--workspace", c.Workspace,
			"-o", c.Output, "--force", "--json", c.Contract)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C on the terminal must reach assay-suite only
		var said bytes.Buffer
		cmd.Stderr = &said
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) &&
			(exit.ExitCode() == contract.ExitFailed || exit.ExitCode() == contract.ExitInconclusive) {
			return nil
		}
		if err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
			return fmt.Errorf("%w: %s", err, first)
		}
		return nil
	}
}
