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

// maxExpr limits an expression, in bytes.
const maxExpr = 16 << 10

// Error says why an expression cannot be compiled.
type Error struct {
	Expr   string
	Detail string // with the place in the expression
}

func (e *Error) Error() string { return "bad expression: " + e.Detail }

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	program cel.Program
	// uncounted does not count its steps. It is nil if that is unsafe. It is for small events, or for all events if
	// always is true.
	uncounted cel.Program
	always    bool
	names     []string // variables that it uses, sorted
	kind      string   // the only kind of event for which it can be true; empty if there is no such kind
	negated   bool
}

// environments are made once for each subject, since that is most of the cost of compiling.
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

// Compile checks and compiles an expression about a subject. It must yield a bool. The error is an *Error.
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

// Constant reports whether the expression uses no variable, so that its value never changes.
func (p *Program) Constant() bool { return len(p.names) == 0 }

// assignment returns the index of a single = outside quotes, with which many query languages compare, or -1.
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

// Uses reports whether the expression uses any of the variables.
func (p *Program) Uses(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(p.names, n) })
}

// OnlyOf reports whether the expression can be true only for events of the kind: kind == "…" is one of its conditions,
// joined with && to the others.
func (p *Program) OnlyOf(kind schema.KernelKind) bool { return !p.negated && p.kind == kind.String() }

// onlyKind returns the kind that a condition joined with && compares kind with; empty if there is none.
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

// Eval evaluates the expression. Errors are missing elements, bad conversions, and too many steps.
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

// evalEvent evaluates the expression for an event. If it uses only variables of the process and the run, the result is
// the same for all events between two execs of a process, and is cached.
func (p *Program) evalEvent(e *Event) (bool, error) {
	if e.last != p {
		e.last, e.answer = p, nil
		if e.Table != nil && !slices.ContainsFunc(p.names, ofEvent) {
			e.answer = make(map[uint64]bool)
		}
	}
	if e.answer == nil || e.K.Kind == schema.KindExec { // an exec event has its own values
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

// NeedsTable reports whether the program needs the table of processes to evaluate events.
func (p *Program) NeedsTable() bool { return p.Uses(append(processVars, "network_namespace")...) }

// ofEvent reports whether a variable differs between the events of a process.
func ofEvent(name string) bool {
	known := func(of Subject) bool {
		return slices.ContainsFunc(vars[of], func(v Var) bool { return v.Name == name })
	}
	return known(Events) && !known(Runs) && !slices.Contains(processVars, name)
}

// native converts a Go value to a CEL value.
func native(v any) ref.Val { return types.DefaultTypeAdapter.NativeToValue(v) }

// Not returns the program with the opposite result.
func (p *Program) Not() *Program {
	q := *p
	q.negated = !p.negated
	return &q
}
