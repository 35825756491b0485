//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/runner/suite"
)

// examine verifies a bundle, and judges it by the rules for evaluations and by those in a file.
func examine(ctx context.Context, bundle, rulesFile string) (*suite.Examined, error) {
	set, err := view.Open(ctx, []string{bundle}, view.Options{})
	if err != nil {
		return nil, err
	}
	defer set.Close()
	b := set.Bundles[0]
	found := &suite.Examined{RunID: b.RunID(), Identity: b.Identity(), Labels: b.Docs.Run.Labels,
		Result: &b.Docs.Result}
	if rulesFile != "" {
		if found.Broken, err = broken(ctx, b, rulesFile); err != nil {
			return nil, err
		}
	}
	rules, err := judge.EvaluationRules("")
	if err != nil {
		return nil, err
	}
	defer rules.Close()
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

// checkRules checks a file of rules.
func checkRules(file string) error {
	rules, err := judge.LoadRules(context.Background(), file)
	if err != nil {
		return err
	}
	rules.Close()
	return nil
}

// broken says which rules of a file a bundle does not pass; empty for none.
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
