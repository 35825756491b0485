//go:build linux

package suite

import (
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// judging are the keys of a task that say how its evidence is judged, and not what an agent gets. If nothing but these
// were edited, what agents did is judged again, and no agent runs.
var judging = []string{"contract", "hidden", "protected", "reward", "forbidden", "start_commit", "rules", "solution"}

// Judging is a contract that judges what a run left in its workspace.
type Judging struct {
	Bundle, Workspace, Contract string
	// Output is the new bundle, with the verdict.
	Output string
}

// earlier is the verdict on an attempt before the suite was edited.
type earlier struct {
	try  schema.SuiteTry
	keys []string // of the task, that were edited since
	// suspicions are those of tries before it that count as long as the attempt does.
	suspicions []schema.Finding
}

// judged is what came of judging an attempt again.
type judged struct {
	of      *attempt
	verdict *schema.SuiteTry
	err     error
}

// asNow is what a task says now of what an agent must not do, with what a worker added for its directories.
func asNow(was, now schema.EvaluationDefinition) schema.EvaluationDefinition {
	now.Workspace, now.Others, now.Agent = was.Workspace, was.Others, was.Agent
	for _, w := range was.Workspace {
		for _, lists := range []struct {
			was []string
			now *[]string
		}{{was.Hidden, &now.Hidden}, {was.Protected, &now.Protected}} {
			for _, pattern := range lists.was {
				if ofWorker(pattern, w) && !slices.Contains(*lists.now, pattern) {
					*lists.now = append(*lists.now, pattern)
				}
			}
		}
	}
	return now
}
