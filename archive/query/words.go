package query

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// words are the possible values of variables that have only a few. The empty string is listed if it can occur.
var words = map[string][]string{
	"kind":               names(schema.Kinds()),
	"class":              names(slices.Collect(allClasses)),
	"network_namespace":  {string(facts.OwnNetwork), string(facts.OtherNetwork), string(facts.UnknownNetwork)},
	"result":             {"ok", "error", "blocked", "-"},
	"bound_by":           {"", schema.BoundByCgroup, schema.BoundByEnv, schema.BoundByLineage, schema.BoundByWindow},
	"method":             {"", schema.BoundByCgroup, schema.BoundByEnv, schema.BoundByLineage, schema.BoundByWindow},
	"verdict":            {"", schema.VerdictPass, schema.VerdictFail, schema.VerdictNotRun},
	"source":             {"gateway", "reported"},
	"run.contract":       {"", schema.VerdictPassed, schema.VerdictFailed, schema.VerdictInconclusive},
	"health.kernel":      {schema.Complete, schema.Partial, schema.Absent},
	"health.policy":      {schema.Present, schema.Absent},
	"health.sdk":         {schema.Present, schema.SelfReported, schema.Absent},
	"health.cgroup":      {schema.Clean, schema.Partial, schema.Failed},
	"health.correlation": {schema.Clean, schema.Partial, schema.Failed},
	"health.network": {schema.Unknown, schema.Absent, schema.ConnectOnly, schema.DatagramPeerObserved,
		schema.ConnectAndDatagram},
	"health.endpoints": {schema.Unknown, schema.NotApplicable, schema.DiagnosticOnly, schema.PeerSet},
	"model.layer":      {"", schema.Complete, schema.Unconfirmed, schema.Partial, schema.Absent},
	"model.path":       {"", schema.ModelPathOnly, schema.ModelPathAlone, schema.ModelPathBypass, schema.Unknown},
	"matched_by":       {"", schema.MatchedByID, schema.MatchedByArguments},
	"run.outcome": {schema.OutcomeExited, schema.OutcomeSignaled, schema.OutcomeTimeout, schema.OutcomeOOM,
		schema.OutcomeLimit, schema.OutcomeCancelled,
		schema.OutcomePolicyKilled, schema.OutcomeInfraError, schema.OutcomeIncomplete, schema.OutcomeReported,
		schema.OutcomeDetached},
}

func names[T fmt.Stringer](list []T) (all []string) {
	for _, v := range list {
		all = append(all, v.String())
	}
	return all
}

func allClasses(yield func(schema.Class) bool) {
	for c := range schema.Class(schema.NumClasses) {
		if !yield(c) {
			return
		}
	}
}

// checkWords refuses a comparison of a variable with a value that it never has, such as
// kind == "conect": such an expression finds nothing, whatever the run did.
func checkWords(checked *cel.Ast) (err error) {
	variables := checked.NativeRep().ReferenceMap()
	check := func(variable, value ast.Expr) {
		ref := variables[variable.ID()]
		if ref == nil || value.Kind() != ast.LiteralKind || err != nil {
			return
		}
		word, ok := value.AsLiteral().Value().(string)
		if !ok || words[ref.Name] == nil && ref.Name != "errno" {
			return
		}
		if ref.Name == "errno" {
			if _, ok := schema.ParseErrno(word); !ok && word != "" {
				err = fmt.Errorf("errno is never %q: it is the name of an error in capitals, such as ENOENT", word)
			}
			return
		}
		if _, numbered := schema.ParseKind(word); ref.Name == "kind" && numbered {
			return // such as event_77, from a newer recorder
		}
		if !slices.Contains(words[ref.Name], word) {
			nearest, _ := schema.Nearest(word, words[ref.Name])
			err = fmt.Errorf("%s is never %q; did you mean %q?", ref.Name, word, nearest)
		}
	}
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		args := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case "_==_", "_!=_":
			check(args[0], args[1])
			check(args[1], args[0])
		case "@in":
			if args[1].Kind() == ast.ListKind {
				for _, value := range args[1].AsList().Elements() {
					check(args[0], value)
				}
			}
		}
	}))
	return err
}
