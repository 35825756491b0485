package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/review/claim"
	"github.com/assay-run/assay-run/archive/review/expr"
	"github.com/assay-run/assay-run/archive/review/find"
	"github.com/assay-run/assay-run/schema"
)

// needs are what a bundle must support for an answer about each subject.
var needs = map[expr.Subject][]claim.Subject{
	expr.Events:    {claim.Programs, claim.Files, claim.Hosts, claim.Privilege},
	expr.Processes: {claim.Programs},
	expr.Calls:     {claim.Calls},
	expr.Turns:     {claim.Calls},
}

// varNeeds narrows what is needed by variables that an expression about events
// or runs uses.
var varNeeds = map[string]claim.Subject{
	"path": claim.Files, "target": claim.Files, "writes": claim.Files, "files": claim.Files,
	"host": claim.Hosts, "endpoint": claim.Hosts, "address": claim.Hosts, "port": claim.Hosts, "names": claim.Hosts, "hosts": claim.Hosts,
	"exe": claim.Programs, "argv": claim.Programs, "command": claim.Programs, "programs": claim.Programs,
	"tool_call": claim.Calls, "bound_by": claim.Calls, "tools": claim.Calls, "decisions": claim.Calls, "calls": claim.Calls,
}

func (m *maker) compile(e exprRule) (*rule, error) {
	want, text := "", ""
	for _, q := range []struct{ word, text string }{{"never", e.Never}, {"always", e.Always}, {"some", e.Some}} {
		if q.text == "" {
			continue
		}
		if want != "" {
			return nil, fmt.Errorf("it has both %q and %q, want one", want, q.word)
		}
		want, text = q.word, q.text
	}
	if want == "" {
		return nil, errors.New(`one of "never", "always" and "some" is missing`)
	}
	of := expr.Subject(cmp.Or(e.Of, string(expr.Events)))
	if !slices.Contains(expr.Subjects, of) {
		return nil, fmt.Errorf("of is %q, want one of %v", e.Of, expr.Subjects)
	}
	p, err := expr.Compile(of, text)
	if err != nil {
		return nil, err
	}
	need := subjectsOf(of, p)
	return &rule{name: cmp.Or(e.Name, "expr: "+text), check: func(ctx context.Context, s *subject) (Verdict, error) {
		v := Verdict{State: Pass}
		found, err := s.find(ctx, of, p, want == "always", func(e Evidence) { v.found(e) })
		if err != nil {
			return v, err
		}
		switch {
		case want == "some" && found > 0:
			return Verdict{State: Pass, Message: fmt.Sprintf("%d %s match", found, of)}, nil
		case want == "some":
			v = Verdict{State: Fail, Message: fmt.Sprintf("none of the %s matches", of)}
			if v.Gaps = s.gaps(need...); len(v.Gaps) > 0 {
				v.State = Unknown
			}
			return v, nil
		case of == expr.Runs && v.State == Fail:
			v.Message = "the expression is false for the run"
			v.Evidence = nil
			if v.Gaps = s.gaps(need...); len(v.Gaps) > 0 {
				v.State = Unknown
			}
			return v, nil
		case v.State == Fail:
			v.Message = fmt.Sprintf("%d %s break the rule", found, of)
			return v, nil
		}
		return s.clean(v, "nothing breaks the rule", need...), nil
	}}, nil
}

// subjectsOf are what an expression's answer rests on.
func subjectsOf(of expr.Subject, p *expr.Program) []claim.Subject {
	var need []claim.Subject
	for name, about := range varNeeds {
		if p.Uses(name) && !slices.Contains(need, about) {
			need = append(need, about)
		}
	}
	if len(need) == 0 && of != expr.Runs || of != expr.Events && of != expr.Runs {
		return needs[of]
	}
	slices.Sort(need)
	return need
}

// find hands out what the expression is true for, or with not what it is false
// for, and returns how many those are.
func (s *subject) find(ctx context.Context, of expr.Subject, p *expr.Program, not bool, found func(Evidence)) (n int, err error) {
	if not {
		p = p.Not()
	}
	hit := func(e Evidence) bool { n++; found(e); return true }
	switch of {
	case expr.Events:
		var k schema.KernelEvent
		var decoding error
		err = find.Events(ctx, s.Bundle, p, func(line []byte) bool {
			if decoding = schema.DecodeKernelEvent(line, &k); decoding != nil {
				return false
			}
			return hit(eventEvidence(&k))
		})
		err = errors.Join(err, decoding)
	case expr.Processes:
		err = find.Processes(ctx, s.Bundle, p, func(x *find.Process) bool {
			return hit(Evidence{Text: fmt.Sprintf("process %d %s", x.PID, query.Cut(query.QuoteArgs(x.Argv), 200)), Layer: schema.KernelPath})
		})
	case expr.Calls:
		err = find.Calls(s.Bundle, p, func(c *schema.Binding) bool {
			return hit(Evidence{Text: strings.TrimSpace("call " + c.ToolCallID + " " + c.Tool), Layer: schema.CorrelationPath})
		})
	case expr.Turns:
		err = find.Turns(ctx, s.Bundle, p, func(t *schema.Turn, _ []byte) bool {
			return hit(Evidence{Text: fmt.Sprintf("turn %d %s", t.Index, t.Tool), Layer: schema.TurnsPath, Line: t.Seq + 1})
		})
	case expr.Runs:
		var ok bool
		if ok, err = find.Run(s.Bundle, p); ok {
			hit(Evidence{Text: "run " + s.RunID()})
		}
	}
	return n, err
}

func eventEvidence(k *schema.KernelEvent) Evidence {
	return Evidence{Text: fmt.Sprintf("%s %s by process %d at %.3fs", k.Kind, query.Cut(query.What(k), 240), k.PID, float64(k.TNS)/1e9), Layer: schema.KernelPath, Line: k.Seq + 1}
}
