package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// maxExpr bounds an expression, in bytes.
const maxExpr = 16 << 10

// Error is an expression that cannot be compiled.
type Error struct {
	Expr   string
	Detail string // with the place in the expression
}

func (e *Error) Error() string { return "bad expression: " + e.Detail }

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	program cel.Program
	// uncounted does not count its steps, which is safe for small events: nil where
	// it is not; for all of them where always is set.
	uncounted cel.Program
	always    bool
	names     []string
	kind      string // of the only events that it is true for, empty if there is no such kind
	negated   bool
}

// environments are made once for each subject: that is most of the cost of
// compiling.
var environments = map[Subject]func() (*cel.Env, error){}

func init() {
	for _, s := range Subjects {
		environments[s] = sync.OnceValues(func() (*cel.Env, error) { return environment(s) })
	}
}

func environment(s Subject) (*cel.Env, error) {
	opts := []cel.EnvOption{ext.Strings(), ext.Sets(), cel.CrossTypeNumericComparisons(true)}
	for _, v := range Vars(s) {
		opts = append(opts, cel.Variable(v.Name, v.Type))
	}
	opts = append(opts, globFunction())
	return cel.NewEnv(opts...)
}

// Compile checks an expression over a subject; it must yield a bool. The error
// is an *Error.
func Compile(s Subject, text string) (*Program, error) {
	fail := func(format string, args ...any) (*Program, error) {
		return nil, &Error{Expr: text, Detail: fmt.Sprintf(format, args...)}
	}
	if len(text) > maxExpr {
		return fail("%d bytes, at most %d are allowed", len(text), maxExpr)
	}
	make, ok := environments[s]
	if !ok {
		return fail("there is no subject %q", s)
	}
	env, err := make()
	if err != nil {
		return fail("%v", err)
	}
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		if at := assignment(text); at >= 0 {
			return fail("= compares nothing: write ==, as in %s==%s", text[:at], text[at+1:])
		}
		return fail("%v", err)
	}
	if !checked.OutputType().IsExactType(cel.BoolType) {
		return fail("it yields %s, and must be true or false", checked.OutputType())
	}
	if err := checkWords(checked); err != nil {
		return fail("%v", err)
	}
	p := &Program{}
	optimise := cel.EvalOptions(cel.OptOptimize)
	if p.program, err = env.Program(checked, optimise, cel.CostLimit(maxCost)); err != nil {
		return fail("%v", err)
	}
	if cheap(env, s, checked, smallEvent) {
		if p.uncounted, err = env.Program(checked, optimise); err != nil {
			return fail("%v", err)
		}
		p.always = cheap(env, s, checked, archive.MaxLine)
	}
	for _, r := range checked.NativeRep().ReferenceMap() {
		if r.Name != "" && !slices.Contains(p.names, r.Name) {
			p.names = append(p.names, r.Name)
		}
	}
	slices.Sort(p.names)
	p.kind = onlyKind(checked.NativeRep().Expr())
	return p, nil
}

// Constant reports whether the expression refers to no variable at all: it is the same
// for everything.
func (p *Program) Constant() bool { return len(p.names) == 0 }

// assignment is the place of a single = outside of quotes, as many query languages write a
// comparison, or -1.
func assignment(text string) int {
	quote := byte(0)
	for i := range len(text) {
		c, before, after := text[i], byte(0), byte(0)
		if i > 0 {
			before = text[i-1]
		}
		if i+1 < len(text) {
			after = text[i+1]
		}
		switch {
		case quote != 0 && c == quote && before != '\\':
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '=' && after != '=' && !strings.ContainsRune("=!<>", rune(before)):
			return i
		}
	}
	return -1
}

// Uses reports whether the expression refers to any of the variables.
func (p *Program) Uses(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(p.names, n) })
}

// OnlyOf reports whether the expression can be true only for events of the kind, because
// kind == "…" is one of the conditions that it joins with &&.
func (p *Program) OnlyOf(kind schema.KernelKind) bool { return !p.negated && p.kind == kind.String() }

// onlyKind is the kind that a condition joined with && compares kind with, or empty.
func onlyKind(e ast.Expr) string {
	if e.Kind() != ast.CallKind {
		return ""
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case "_&&_":
		return cmp.Or(onlyKind(args[0]), onlyKind(args[1]))
	case "_==_":
		for i, name := range args {
			value := args[1-i]
			if name.Kind() != ast.IdentKind || name.AsIdent() != "kind" || value.Kind() != ast.LiteralKind {
				continue
			}
			word, _ := value.AsLiteral().Value().(string)
			return word
		}
	}
	return ""
}

// Eval evaluates the expression. An error is of the evaluation: an element that
// is not there, a bad conversion, too much work.
func (p *Program) Eval(a interpreter.Activation) (bool, error) {
	program := p.program
	if e, ok := a.(*Event); ok && p.uncounted != nil && (p.always || e.small()) {
		program = p.uncounted
	}
	v, _, err := program.Eval(a)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	return ok && bool(b) != p.negated, nil
}

// evalEvent evaluates the expression for an event. Where it is about nothing but
// the process and the run, the answer is the same for all that a process did, and
// is found once.
func (p *Program) evalEvent(e *Event) (bool, error) {
	if e.last != p {
		e.last, e.answer = p, nil
		if e.Table != nil && !slices.ContainsFunc(p.names, ofEvent) {
			e.answer = make(map[uint64]bool)
		}
	}
	if e.answer == nil || e.K.Kind == schema.KindExec { // which tells of its process itself
		return p.Eval(e)
	}
	if ok, known := e.answer[e.K.ExecID]; known {
		return ok, nil
	}
	ok, err := p.Eval(e)
	if err == nil {
		e.answer[e.K.ExecID] = ok
	}
	return ok, err
}

// NeedsTable reports whether the program needs the table of processes for events.
func (p *Program) NeedsTable() bool { return p.Uses(append(processVars, "network_namespace")...) }

// ofEvent reports whether a variable differs between the events of a process.
func ofEvent(name string) bool {
	known := func(of Subject) bool {
		return slices.ContainsFunc(vars[of], func(v Var) bool { return v.Name == name })
	}
	return known(Events) && !known(Runs) && !slices.Contains(processVars, name)
}

// native turns a Go value into one of CEL.
func native(v any) ref.Val { return types.DefaultTypeAdapter.NativeToValue(v) }

// Not is the program with the opposite answer.
func (p *Program) Not() *Program {
	q := *p
	q.negated = !p.negated
	return &q
}
