//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/schema"
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
	if book := b.Docs.Health.ClosedBook; book != nil {
		found.Book = book.State
	}
	if def := b.Docs.Evaluation; def != nil && e.Evaluation != nil {
		def.Evaluation = e.Evaluation(def.Evaluation)
	}
	if e.Rules != "" {
		if found.Broken, err = broken(ctx, b, e.Rules); err != nil {
			return nil, err
		}
	}
	if err := requests(ctx, b, e.AgentKeys, found); err != nil {
		return nil, err
	}
	report, err := judge.Judge(ctx, rules, set.Bundles)
	if err != nil {
		return nil, err
	}
	var undecided []string
	for _, v := range report.Judgements[0].Verdicts {
		found.Suspicions = append(found.Suspicions, v.Findings...)
		if v.State == judge.Unknown {
			found.Unknown = append(found.Unknown, v.Rule)
			undecided = append(undecided, v.Gaps...)
		}
	}
	for _, o := range b.Docs.Health.Open {
		behind := func(gap string) bool { return strings.HasPrefix(gap, o.String()) }
		if o.Unusual && slices.ContainsFunc(undecided, behind) {
			found.Unusual = append(found.Unusual, o.String())
		}
	}
	return found, nil
}

// requests counts the requests to models, and those that failed on the provider's side or that the gateway could not
// record.
func requests(ctx context.Context, b *view.Bundle, agentKeys []string, found *suite.Examined) error {
	if b.Docs.Result.Model == nil {
		return nil
	}
	for it, err := range b.Items(ctx, schema.ModelPath) {
		if err != nil {
			return err
		}
		m := it.Model
		if m == nil || m.Refused != nil {
			continue
		}
		found.ModelRequests++
		why, outage := providerFailure(m, agentKeys)
		found.ModelOutage = found.ModelOutage || outage
		if why != "" {
			if found.ModelFailed++; found.ModelFailed == 1 {
				found.ModelError = why
			}
		}
	}
	return nil
}

// providerFailure says how a request failed on the provider's side; empty if it did not. outage means that it would
// have failed whatever the agent had sent: nobody was there, or the provider is overloaded. An agent may provoke all
// else: 401 by naming an organization that is not the key's, 402 by asking for too many tokens, 403 by a model that the
// key may not ask, 408 by being slow, 429 by many requests, and others by what the provider does not expect.
func providerFailure(m *schema.ModelEvent, agentKeys []string) (why string, outage bool) {
	kind := ""
	if m.ErrorType != nil {
		kind = schema.OneLine(*m.ErrorType)
	}
	status := 0
	if m.Status != nil {
		status = *m.Status
	}
	switch kind {
	case schema.ModelErrorUnreachable, schema.ModelErrorNoAnswer, schema.ModelErrorBroken, schema.ModelErrorEncoding:
		return kind, kind == schema.ModelErrorUnreachable
	case schema.ModelErrorLeft, schema.ModelErrorKey:
		return "", false
	}
	refused := status == 401 || status == 402 || status == 403
	switch {
	case refused && m.Route != nil && slices.Contains(agentKeys, *m.Route):
		return "", false
	case refused, status == 408, status == 429, status >= 500:
		return strings.TrimSpace(fmt.Sprintf("%d %s", status, kind)), status == 502 || status == 503 || status == 529
	case status == 200 && kind != "": // an error within a stream
		return kind, kind == "overloaded_error"
	}
	return "", false
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
			(exit.ExitCode() == schema.ExitContractFailed || exit.ExitCode() == schema.ExitContractInconclusive) {
			return nil
		}
		if err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
			return fmt.Errorf("%w: %s", err, first)
		}
		return nil
	}
}
