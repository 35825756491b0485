package expr

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"

	"github.com/assay-run/assay-run/archive"
)

// maxCost bounds one evaluation, in CEL's units: about one for each step.
const maxCost = 1_000_000

// costLimits are the options that keep an evaluation within maxCost. Counting the
// steps takes as long as the steps: it is left out where the expression cannot
// exceed maxCost, whatever the event.
func costLimits(env *cel.Env, s Subject, ast *cel.Ast) []cel.ProgramOption {
	if s == Events {
		if est, err := env.EstimateCost(ast, lineSizes{}); err == nil && est.Max <= maxCost {
			return nil
		}
	}
	return []cel.ProgramOption{cel.CostLimit(maxCost)}
}

// lineSizes knows that no variable of an event is larger than its line. Of what
// comes from a bundle's documents it knows nothing.
type lineSizes struct{}

func (lineSizes) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	path := n.Path()
	if len(path) == 0 || !slices.ContainsFunc(vars[Events], func(v Var) bool { return v.Name == path[0] }) {
		return nil
	}
	if n.Type().Kind() == cel.ListKind {
		return &checker.SizeEstimate{Max: archive.MaxLine / 3} // elements are ,"" at least
	}
	return &checker.SizeEstimate{Max: archive.MaxLine}
}

func (lineSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
