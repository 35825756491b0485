package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// needs are what a bundle must support for an answer about each subject.
var needs = map[query.Subject][]view.Subject{
	query.Events:    {view.Programs, view.Files, view.Hosts, view.Privilege},
	query.Processes: {view.Programs},
	query.Calls:     {view.Calls},
	query.Turns:     {view.Calls},
}

// varNeeds narrows what is needed by variables that an expression about events
// or runs uses.
var varNeeds = map[string]view.Subject{
	"path": view.Files, "target": view.Files, "writes": view.Files, "files": view.Files,
	"host": view.Hosts, "endpoint": view.Hosts, "address": view.Hosts, "port": view.Hosts, "names": view.Hosts,
	"hosts": view.Hosts,
	"exe":   view.Programs, "argv": view.Programs, "command": view.Programs, "programs": view.Programs,
	"tool_call": view.Calls, "bound_by": view.Calls, "tools": view.Calls, "decisions": view.Calls, "calls": view.Calls,
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
	of := query.Subject(cmp.Or(e.Of, string(query.Events)))
	if !slices.Contains(query.Subjects, of) {
		return nil, fmt.Errorf("of is %q, want one of %v", e.Of, query.Subjects)
	}
	p, err := query.Compile(of, text)
	if err != nil {
		return nil, err
	}
	if p.Constant() {
		return nil, fmt.Errorf("%q names no variable, so it says the same of every bundle", text)
	}
	need := subjectsOf(of, p)
	if want == "always" {
		p = p.Not()
	}
	r := &rule{name: cmp.Or(e.Name, "expr: "+text)}
	if of == query.Events {
		r.program = p
	}
	r.processes = of == query.Processes
	r.check = func(ctx context.Context, s *subject) (Verdict, error) {
		v := Verdict{State: Pass}
		var found int
		var err error
		if of == query.Events {
			v = *s.found[r]
			found = len(v.Evidence) + v.More
		} else {
			found, err = s.find(ctx, of, p, func(e Evidence) { v.found(e) })
		}
		if err != nil {
			return v, err
		}
		switch {
		case want == "some" && found > 0:
			return Verdict{State: Pass, Message: fmt.Sprintf("%d %s match", found, of)}, nil
		case want == "some":
			v = Verdict{State: Fail, Message: fmt.Sprintf("none of the %s matches", of)}
			if gaps := s.gaps(need...); len(gaps) > 0 {
				v.unknown(gaps...)
			}
			return v, nil
		case of == query.Runs && v.State == Fail:
			v.Message = "the expression is false for the run"
			v.Evidence = nil
			if gaps := s.gaps(need...); len(gaps) > 0 {
				v.unknown(gaps...)
			}
			return v, nil
		case v.State == Fail:
			v.Message = fmt.Sprintf("%d %s break the rule", found, of)
			return v, nil
		}
		return s.clean(v, "nothing breaks the rule", need...), nil
	}
	return r, nil
}

// subjectsOf are what an expression's answer rests on.
func subjectsOf(of query.Subject, p *query.Program) []view.Subject {
	var need []view.Subject
	for name, about := range varNeeds {
		if p.Uses(name) && !slices.Contains(need, about) {
			need = append(need, about)
		}
	}
	if len(need) == 0 && of != query.Runs || of != query.Events && of != query.Runs {
		return needs[of]
	}
	slices.Sort(need)
	return need
}

// find hands out what other than an event the expression is true for, and returns how many
// those are.
func (s *subject) find(ctx context.Context, of query.Subject, p *query.Program, found func(Evidence)) (n int,
	err error) {
	hit := func(e Evidence) bool { n++; found(e); return true }
	switch of {
	case query.Processes:
		err = query.ProcessesOf(s.Bundle, s.processes, p, func(x *query.Process) bool {
			return hit(Evidence{Text: fmt.Sprintf("process %d %s", x.PID, view.Cut(view.QuoteArgs(x.Argv), 200)),
				Layer: schema.KernelPath})
		})
	case query.Calls:
		err = query.FindCalls(s.Bundle, p, func(c *schema.Binding) bool {
			return hit(Evidence{Text: strings.TrimSpace("call " + c.ToolCallID + " " + c.Tool),
				Layer: schema.CorrelationPath})
		})
	case query.Turns:
		err = query.FindTurns(ctx, s.Bundle, p, func(t *schema.Turn, _ []byte) bool {
			return hit(Evidence{Text: fmt.Sprintf("turn %d %s", t.Index, t.Tool), Layer: schema.TurnsPath,
				Line: t.Seq + 1})
		})
	case query.Runs:
		var ok bool
		if ok, err = query.FindRun(s.Bundle, p); ok {
			hit(Evidence{Text: "run " + s.RunID()})
		}
	}
	return n, err
}

func eventEvidence(k *schema.KernelEvent) Evidence {
	return Evidence{Text: fmt.Sprintf("%s %s by process %d at %.3fs", k.Kind, view.Cut(view.What(k), 240), k.PID,
		float64(k.TNS)/1e9), Layer: schema.KernelPath, Line: k.Seq + 1}
}
