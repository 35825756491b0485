package judge

import (
	"context"
	"fmt"

	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/evalfile"
)

// BuiltinEvaluation stands in place of a rule file's name for the rules of package evaluation.
const BuiltinEvaluation = "builtin:evaluation"

// EvaluationRules returns the rules about an agent under evaluation, with the evaluation file at path. If path is
// empty, each bundle's own file is used.
func EvaluationRules(path string) (*Rules, error) {
	r := &Rules{allowed: map[string]bool{}, evaluation: &evaluationRules{}}
	if path == "" {
		return r, nil
	}
	doc, err := evalfile.Load(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRules, err)
	}
	r.evaluation.file = doc
	return r, nil
}

// evaluationRules are the rules of package evaluation. If file is nil, each bundle's own file is used.
type evaluationRules struct{ file *schema.Evaluation }

func (e *evaluationRules) judge(ctx context.Context, b *view.Bundle) ([]Verdict, error) {
	file := e.file
	if file == nil {
		file = b.Docs.Evaluation
	}
	if file == nil {
		return nil, fmt.Errorf("%s: the bundle has no evaluation file; name one with --evaluation, or run with "+
			"assay-run --evaluation", b.Name)
	}
	found, err := evaluation.Judge(ctx, b, &file.Evaluation)
	if err != nil {
		return nil, err
	}
	var all []Verdict
	for _, f := range found {
		v := Verdict{Rule: f.Rule, State: State(f.State), Message: f.Message, More: f.More, Gaps: f.Gaps,
			Findings: f.Findings, Doubts: f.Doubts}
		for _, list := range [][]schema.Finding{f.Findings, f.Doubts} {
			for _, x := range list {
				v.Evidence = append(v.Evidence, findingEvidence(x))
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// findingEvidence converts a finding.
func findingEvidence(f schema.Finding) Evidence {
	e := Evidence{Text: f.Text, Layer: f.Layer}
	if f.Program != "" {
		e.Text += " by " + f.Program
	}
	if f.ToolCallID != "" {
		e.Text += " in call " + f.ToolCallID
	}
	if len(f.Events) > 0 {
		e.Line = f.Events[0] + 1
	}
	return e
}
