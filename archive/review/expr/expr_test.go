package expr

import (
	"strings"
	"testing"

	"cel.dev/cel-go/common/types/ref"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/review"
	"github.com/assay-run/assay-run/archive/review/process"
	"github.com/assay-run/assay-run/schema"
)

// TestEveryDocumentedVariableHasAValueOfItsType evaluates each variable of each
// subject: one that is declared and not given would fail a user's query.
func TestEveryDocumentedVariableHasAValueOfItsType(t *testing.T) {
	b := &review.Bundle{Docs: &archive.Documents{}, Report: &archive.Report{}}
	run := RunOf(b)
	table := process.NewTable()
	table.Add(&schema.KernelEvent{Kind: schema.KindFork, ExecID: 1, PID: 7})
	call := schema.Binding{ToolCallID: "x"}
	for _, s := range Subjects {
		for _, v := range Vars(s) {
			at := map[Subject]interface {
				ResolveName(string) (any, bool)
			}{
				Events: &Event{Run: run, Table: table, K: &schema.KernelEvent{Kind: schema.KindConnect, Value: "192.0.2.1:443"}}, Processes: OfProcess(run, table, &table.All[0]),
				Calls: OfCall(run, &schema.CorrelationReport{}, &call), Turns: OfTurn(run, &schema.Turn{}), Runs: run,
			}[s]
			got, ok := at.ResolveName(v.Name)
			if !ok {
				t.Errorf("%s: %s has no value", s, v.Name)
				continue
			}
			val, isRef := got.(ref.Val)
			if !isRef {
				val = native(got)
			}
			if want := v.Type.String(); want != "dyn" && !strings.HasPrefix(want, val.Type().TypeName()) {
				t.Errorf("%s: %s is %s, declared as %s", s, v.Name, val.Type().TypeName(), want)
			}
		}
	}
}

func TestHostIsTheNameWhereOneIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		k    schema.KernelEvent
		expr string
	}{
		"a connect with a name":    {schema.KernelEvent{Kind: schema.KindConnect, Value: "192.0.2.1:443", Names: []string{"a.example"}}, `host == "a.example" && port == 443 && address == "192.0.2.1"`},
		"a connect without one":    {schema.KernelEvent{Kind: schema.KindConnect, Value: "[2001:db8::1]:80"}, `host == "2001:db8::1" && port == 80`},
		"a unix socket":            {schema.KernelEvent{Kind: schema.KindConnect, Value: "unix:/run/x"}, `host == "unix:/run/x" && port == 0 && address == ""`},
		"a question to DNS":        {schema.KernelEvent{Kind: schema.KindDNS, Value: "b.example", Remote: "192.0.2.53:53"}, `host == "b.example" && endpoint == "192.0.2.53:53"`},
		"what is no network event": {schema.KernelEvent{Kind: schema.KindOpen, Value: "/x"}, `host == "" && port == 0 && path == "/x"`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(Events, c.expr)
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := p.Eval(&Event{Run: Run{}, K: &c.k}); err != nil || !ok {
				t.Errorf("%s is %v, %v", c.expr, ok, err)
			}
		})
	}
}

func TestExpressionsThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		`kind`:                             "must be true or false",
		`kind == 1`:                        "no matching overload",
		`nothing == 1`:                     "undeclared reference",
		`kind == `:                         "Syntax error",
		strings.Repeat(" ", maxExpr) + "1": "at most",
	} {
		if _, err := Compile(Events, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// TestAnExpressionThatWouldNotEndIsCut evaluates one whose work grows with the
// fifth power of a list's length.
func TestAnExpressionThatWouldNotEndIsCut(t *testing.T) {
	p, err := Compile(Events, `argv.exists(a, argv.exists(b, argv.exists(c, argv.exists(d, a+b+c+d == "x"))))`)
	if err != nil {
		t.Fatal(err)
	}
	k := &schema.KernelEvent{Kind: schema.KindExec, Argv: make([]string, 1000)}
	if _, err := p.Eval(&Event{Run: Run{}, K: k}); err == nil || !strings.Contains(err.Error(), "cost limit") {
		t.Errorf("error is %v", err)
	}
}

// TestStepsAreCountedWhereTheyCouldBeTooMany: counting is slow, and what is not
// counted must not be able to take long.
func TestStepsAreCountedWhereTheyCouldBeTooMany(t *testing.T) {
	env, err := environments[Events]()
	if err != nil {
		t.Fatal(err)
	}
	for text, counted := range map[string]bool{
		`kind == "connect" && !host.endsWith(".example.com")`: false,
		`exe.endsWith("python3") && kind == "exit"`:           false,
		`path.glob("/etc/**") || "-rf" in argv`:               false,
		`command.matches("a+b+")`:                             false,
		`argv.exists(a, a == "x")`:                            true,
		`command.matches(value)`:                              true,
		`value == run.workdir + run.workdir`:                  true,
		`[1, 2, 3].exists(x, argv.exists(a, size(a) == x))`:   true,
	} {
		ast, issues := env.Compile(text)
		if err := issues.Err(); err != nil {
			t.Fatal(err)
		}
		if got := len(costLimits(env, Events, ast)) > 0; got != counted {
			t.Errorf("%s: counted %v", text, got)
		}
	}
}
