package query

import (
	"strings"
	"testing"

	"cel.dev/cel-go/common/types/ref"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// TestEveryDocumentedVariableHasAValueOfItsType evaluates each variable of each
// subject: one that is declared and not given would fail a user's query.
func TestEveryDocumentedVariableHasAValueOfItsType(t *testing.T) {
	b := &view.Bundle{Docs: &archive.Documents{}, Report: &archive.Report{}}
	run := RunOf(b)
	table := facts.NewTable()
	table.Add(&schema.KernelEvent{Kind: schema.KindFork, ExecID: 1, PID: 7})
	call := schema.Binding{ToolCallID: "x"}
	for _, s := range Subjects {
		for _, v := range Vars(s) {
			at := map[Subject]interface {
				ResolveName(string) (any, bool)
			}{
				Events: &Event{Run: run, Table: table,
					K: &schema.KernelEvent{Kind: schema.KindConnect, Value: "192.0.2.1:443"}},
				Processes: ofProcess(run, table, &table.All[0]),
				Calls:     ofCall(run, &schema.CorrelationReport{}, &call), Turns: ofTurn(run, &schema.Turn{}),
				Runs: run,
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
		"a connect with a name": {schema.KernelEvent{Kind: schema.KindConnect, Value: "192.0.2.1:443",
			Names: []string{"a.example"}}, `host == "a.example" && port == 443 && address == "192.0.2.1"`},
		"a connect without one": {schema.KernelEvent{Kind: schema.KindConnect, Value: "[2001:db8::1]:80"},
			`host == "2001:db8::1" && port == 80`},
		"a unix socket": {schema.KernelEvent{Kind: schema.KindConnect, Value: "unix:/run/x"},
			`host == "unix:/run/x" && port == 0 && address == ""`},
		"a question to DNS": {schema.KernelEvent{Kind: schema.KindDNS, Value: "b.example",
			Remote: "192.0.2.53:53"}, `host == "b.example" && endpoint == "192.0.2.53:53"`},
		"what is no network event": {schema.KernelEvent{Kind: schema.KindOpen, Value: "/x"},
			`host == "" && port == 0 && path == "/x"`},
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

func TestASingleEqualsSignIsExplained(t *testing.T) {
	for text, want := range map[string]string{
		`kind = "connect"`:              `bad expression: = compares nothing: write ==, as in kind == "connect"`,
		`value == "a=b" && kind='open'`: `bad expression: = compares nothing: write ==, as in value == "a=b" && kind=='open'`,
		`value == "a\"=" && kind = "x"`: `bad expression: = compares nothing: write ==, as in value == "a\"=" && kind == "x"`,
	} {
		if _, err := Compile(Events, text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`kind <= "x" && kind >= "a" && kind != "=" &`, `value == 'a = b' +`} {
		if _, err := Compile(Events, text); err == nil || strings.Contains(err.Error(), "compares nothing") {
			t.Errorf("%s: %v", text, err)
		}
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
	const never, large, always = "never", "for a large event", "always"
	for text, counted := range map[string]string{
		`kind == "connect" && !host.endsWith(".example.com")`: never,
		`exe.endsWith("python3") && kind == "exit"`:           never,
		`path.glob("/etc/**") || "-rf" in argv`:               never,
		`command.matches("a+b+")`:                             never,
		`argv.exists(a, a == "x")`:                            large,
		`command.matches(value)`:                              large,
		`[1, 2, 3].exists(x, argv.exists(a, size(a) == x))`:   large,
		`argv.exists(a, argv.exists(b, a + b == "x"))`:        always,
		`value == run.workdir + run.workdir`:                  always,
	} {
		p, err := Compile(Events, text)
		if err != nil {
			t.Fatal(err)
		}
		got := always
		if p.always {
			got = never
		} else if p.uncounted != nil {
			got = large
		}
		if got != counted {
			t.Errorf("%s: counted %s", text, got)
		}
	}
}

// TestOnlySmallEventsAreNotCounted: what the process was started with counts too.
func TestOnlySmallEventsAreNotCounted(t *testing.T) {
	exec := func(argv ...string) *schema.KernelEvent {
		return &schema.KernelEvent{Kind: schema.KindExec, Argv: argv}
	}
	for name, c := range map[string]struct {
		e     Event
		small bool
	}{
		"small":              {Event{K: exec("a", "b"), Bytes: 100}, true},
		"a long line":        {Event{K: exec("a"), Bytes: smallEvent + 1}, false},
		"long arguments":     {Event{K: exec(strings.Repeat("x", smallEvent)), Bytes: 100}, false},
		"of an unknown size": {Event{K: exec("a")}, false},
	} {
		if got := c.e.small(); got != c.small {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestOneAnswerForAProcess: it is not asked for again, nor taken for that of
// another process, of an exec or of another expression.
func TestOneAnswerForAProcess(t *testing.T) {
	mine, err := Compile(Events, `argv.exists(a, a == "x") && run.id == "r"`)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Compile(Events, `argv.exists(a, a == "x") && kind == "exit"`)
	if err != nil {
		t.Fatal(err)
	}
	e := &Event{Run: Run{"run.id": native("r")}, Table: &facts.Table{}}
	for i, c := range []struct {
		p    *Program
		k    schema.KernelEvent
		want bool
	}{
		{mine, schema.KernelEvent{Kind: schema.KindOpen, ExecID: 1}, false},
		{mine, schema.KernelEvent{Kind: schema.KindExec, ExecID: 1, Argv: []string{"x"}}, true},
		{mine, schema.KernelEvent{Kind: schema.KindExit, ExecID: 1}, false},
		{mine.Not(), schema.KernelEvent{Kind: schema.KindExit, ExecID: 1}, true},
		{other, schema.KernelEvent{Kind: schema.KindExit, ExecID: 1}, false},
	} {
		e.K = &c.k
		if got, err := c.p.evalEvent(e); err != nil || got != c.want {
			t.Errorf("%d: %v, %v", i, got, err)
		}
	}
	if !ofEvent("kind") || ofEvent("argv") || ofEvent("run.id") || ofEvent("a") {
		t.Error("variables of an event are taken for those of a process, or the reverse")
	}
}

func TestAValueThatAVariableNeverHasIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`kind == "conect"`:                `kind is never "conect"; did you mean "connect"?`,
		`"opennat" != kind`:               `did you mean "openat"?`,
		`kind in ["exec", "conect"]`:      `did you mean "connect"?`,
		`class == "agents" && pid > 1`:    `did you mean "agent"?`,
		`errno == "enoent"`:               "in capitals",
		`run.outcome == "exit"`:           `did you mean "exited"?`,
		`kind == "connect"`:               "",
		`kind == "event_999"`:             "",
		`errno == "" || errno == "EPERM"`: "",
		`kind + "x" == "conectx"`:         "",
		`path == "conect"`:                "",
	} {
		_, err := Compile(Events, text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
