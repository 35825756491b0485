package judge

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// State is the state of a rule, or the answer of a diff.
type State string

const (
	Pass    State = "pass"
	Fail    State = "fail"
	Unknown State = "unknown"
)

// Verdict is the verdict of one rule about one bundle.
type Verdict struct {
	Rule  string `json:"rule"`
	State State  `json:"state"`
	// Allowed is true if the rule is unknown and the rule file allows that.
	Allowed bool `json:"allowed,omitempty"`
	// Message gives the reason in one sentence.
	Message string `json:"message"`
	// Evidence lists violations of the rule, at most 20. More counts further ones.
	Evidence []Evidence `json:"evidence,omitempty"`
	More     int        `json:"more_evidence,omitempty"`
	// Gaps say why the bundle does not support the rule, the most serious first. Message has the first gap with its
	// remedy.
	Gaps []string `json:"gaps,omitempty"`
	// calls are the open calls behind Gaps, an empty one for another reason.
	calls []string
	// Findings and Doubts are set by the rules of [BuiltinEvaluation].
	Findings []schema.Finding `json:"findings,omitempty"`
	Doubts   []schema.Finding `json:"doubts,omitempty"`
}

// Passes reports whether the verdict lets a pipeline continue.
func (v *Verdict) Passes() bool { return v.State == Pass || v.Allowed }

// Evidence is one violation in a bundle.
type Evidence struct {
	Text string `json:"text"`
	// Layer is the path of the member in the bundle, and Line counts from 1; 0 means the whole document.
	Layer string `json:"layer,omitempty"`
	Line  uint64 `json:"line,omitempty"`
}

// maxEvidence limits Verdict.Evidence.
const maxEvidence = 20

// unknown sets the state to unknown because of gaps.
func (v *Verdict) unknown(gaps ...view.Gap) {
	v.State, v.Message, v.Gaps, v.calls = Unknown, gaps[0].String(), nil, nil
	for _, g := range gaps {
		v.Gaps, v.calls = append(v.Gaps, g.Text), append(v.calls, g.Call)
	}
}

func unknown(gap view.Gap) (v Verdict) {
	v.unknown(gap)
	return v
}

func (v *Verdict) found(e Evidence) {
	v.State = Fail
	if len(v.Evidence) >= maxEvidence {
		v.More++
		return
	}
	v.Evidence = append(v.Evidence, e)
}

// Judgement holds the verdicts of all rules about one bundle.
type Judgement struct {
	Bundle   string    `json:"bundle"`
	RunID    string    `json:"run_id"`
	Identity string    `json:"identity"`
	State    State     `json:"state"`
	Verdicts []Verdict `json:"verdicts"`
}

// Report holds the judgements of several bundles.
type Report struct {
	State      State       `json:"state"`
	Judgements []Judgement `json:"bundles"`
}

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for i := range r.Judgements {
		j := &r.Judgements[i]
		fmt.Fprintf(&b, "%s: %s\n", schema.OneLine(j.Bundle), j.State)
		for _, v := range j.Verdicts {
			state := string(v.State)
			if v.Allowed {
				state = "unknown, allowed"
			}
			message := schema.OneLine(v.Message)
			if more := len(v.Gaps) - 1; more > 0 {
				message += fmt.Sprintf(" (and %s: see --format json)",
					schema.Count(more, "more reason", "more reasons"))
			}
			fmt.Fprintf(&b, "  %-8s %s: %s\n", state, schema.OneLine(v.Rule), message)
			for _, e := range v.Evidence {
				fmt.Fprintf(&b, "           %s\n", schema.OneLine(e.Text))
			}
			if v.More > 0 {
				fmt.Fprintf(&b, "           … and %d more\n", v.More)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Judge applies the rules to each bundle. An error comes from reading a bundle or from evaluating an expression.
func Judge(ctx context.Context, rules *Rules, bundles []*view.Bundle) (*Report, error) {
	r := &Report{State: Pass}
	for _, b := range bundles {
		j := Judgement{Bundle: b.Name, RunID: b.RunID(), Identity: b.Identity(), State: Pass}
		c := &subject{Bundle: b, run: query.RunOf(b)}
		if err := c.read(ctx, rules.list); err != nil {
			return nil, err
		}
		for _, rule := range rules.list {
			v, err := rule.check(ctx, c)
			if err != nil {
				return nil, fmt.Errorf("%s: rule %s: %w", b.Name, rule.name, err)
			}
			v.Rule, v.Allowed = rule.name, v.State == Unknown && rules.allow(rule.name, v.calls)
			j.Verdicts = append(j.Verdicts, v)
			j.State = worse(j.State, v)
		}
		if rules.evaluation != nil {
			verdicts, err := rules.evaluation.judge(ctx, b)
			if err != nil {
				return nil, err
			}
			for _, v := range verdicts {
				j.Verdicts = append(j.Verdicts, v)
				j.State = worse(j.State, v)
			}
		}
		r.Judgements = append(r.Judgements, j)
		r.State = worse(r.State, Verdict{State: j.State})
	}
	return r, nil
}

func worse(s State, v Verdict) State {
	switch {
	case v.Passes():
		return s
	case s == Fail || v.State == Fail:
		return Fail
	}
	return Unknown
}
