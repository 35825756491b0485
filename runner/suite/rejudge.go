//go:build linux

package suite

import (
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// judgingKeys are the keys of a task that say how its evidence is judged, and change nothing for an agent. If only
// these were edited, the existing bundles are judged again, and no agent runs.
var judgingKeys = []string{"contract", "hidden", "protected", "reward", "forbidden", "start_commit", "rules",
	"solution"}

// ContractCheck asks to judge what a run left in its workspace by a contract. The fields are paths.
type ContractCheck struct {
	Bundle string
	// Workspace is the workspace as it was before the run.
	Workspace string
	Contract  string
	// Output is the new bundle to write, with the verdict.
	Output string
}

// earlier is the verdict on an attempt before the suite was edited.
type earlier struct {
	try  schema.SuiteTry
	keys []string // keys of the task that were edited since
	// suspicions are those of earlier tries that the new verdict keeps.
	suspicions []schema.Finding
}

// judged is the result of judging an attempt again.
type judged struct {
	of      *attempt
	verdict *schema.SuiteTry
	err     error
}

// updated is the evaluation now, as the task defines it today, with the workspace and the patterns that the worker
// added for its directories to the evaluation was.
func updated(was, now schema.EvaluationDefinition) schema.EvaluationDefinition {
	now.Workspace, now.Others, now.Agent = was.Workspace, was.Others, was.Agent
	for _, w := range was.Workspace {
		for _, lists := range []struct {
			was []string
			now *[]string
		}{{was.Hidden, &now.Hidden}, {was.Protected, &now.Protected}, {was.Watched, &now.Watched}} {
			for _, pattern := range lists.was {
				if ofWorker(pattern, w) && !slices.Contains(*lists.now, pattern) {
					*lists.now = append(*lists.now, pattern)
				}
			}
		}
	}
	return now
}
