package query

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
)

// maxCost bounds one evaluation, in CEL's units: about one for each step.
const maxCost = 1_000_000

// smallEvent is how large an event and what its process was started with are at
// most, for which an expression is evaluated without counting where that is safe.
const smallEvent = 4 << 10

// cheap reports whether no evaluation exceeds maxCost for events of at most size bytes. Counting
// the steps takes as long as the steps.
func cheap(env *cel.Env, s Subject, ast *cel.Ast, size uint64) bool {
	if s != Events {
		return false
	}
	est, err := env.EstimateCost(ast, lineSizes(size))
	return err == nil && est.Max <= maxCost
}

// lineSizes knows that no variable of an event is larger than its line. Of what
// comes from a bundle's documents it knows nothing.
type lineSizes uint64

func (s lineSizes) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	path := n.Path()
	if len(path) == 0 || !slices.ContainsFunc(vars[Events], func(v Var) bool { return v.Name == path[0] }) {
		return nil
	}
	if n.Type().Kind() == cel.ListKind {
		return &checker.SizeEstimate{Max: uint64(s) / 3} // elements are ,"" at least
	}
	return &checker.SizeEstimate{Max: uint64(s)}
}

func (lineSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
