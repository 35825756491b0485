package query

import (
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
)

// maxCost limits one evaluation, in CEL's units: about one per step.
const maxCost = 1_000_000

// smallEvent limits the bytes of an event, and of its process's executable, arguments and directory. For small events,
// most expressions can be evaluated without counting steps; see cheap.
const smallEvent = 4 << 10

// cheap reports whether an evaluation cannot exceed maxCost for events of at most size bytes. Then the steps need not
// be counted, which takes as long as the steps themselves.
func cheap(env *cel.Env, s Subject, ast *cel.Ast, size uint64) bool {
	if s != Events {
		return false
	}
	est, err := env.EstimateCost(ast, lineSizes(size))
	return err == nil && est.Max <= maxCost
}

// lineSizes estimates sizes by the length of an event's line, which no variable of the event exceeds. It gives no
// estimate for variables that come from a bundle's documents.
type lineSizes uint64

func (s lineSizes) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	path := n.Path()
	if len(path) == 0 || !slices.ContainsFunc(vars[Events], func(v Var) bool { return v.Name == path[0] }) {
		return nil
	}
	if n.Type().Kind() == cel.ListKind {
		return &checker.SizeEstimate{Max: uint64(s) / 3} // an element takes at least ,""
	}
	return &checker.SizeEstimate{Max: uint64(s)}
}

func (lineSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
