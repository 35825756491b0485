//go:build linux

package suite

import (
	"fmt"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// TestSilences has workers that are silent and go on. A word is "AGENT WORKER STOPS", for a try of the agent's that was
// lost with the worker, or "AGENT WORKER STOPS passed". All tries of an agent are at one task.
func TestSilences(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tries  []string
		blamed bool // the agent a
	}{
		{"stopped twice with this agent and never without", []string{"a 1 0", "b 1 1 passed", "a 1 1", "b 1 2 passed"},
			true},
		{"stopped twice, and nobody else is tried meanwhile", []string{"b 1 0 passed", "a 1 0", "a 1 1", "a 1 2"},
			true},
		{"stopped once", []string{"a 1 0", "b 1 1 passed", "a 1 1 passed"}, false},
		{"stopped twice, and once with another agent", []string{"a 1 0", "b 1 1", "a 1 2", "b 1 3 passed",
			"a 1 3 passed"}, false},
		{"stopped before the suite", []string{"a 1 4", "b 1 4 passed", "a 1 4", "b 1 4 passed", "a 1 4 passed"}, false},
		{"without network, twice", []string{"a 1 0", "b 1 0 passed", "a 1 0", "b 1 0 passed", "a 1 0 passed"}, false},
		{"stopped once, and a worker died", []string{"a 1 0", "a 2 0", "b 1 1 passed", "a 1 1 passed"}, false},
		{"two workers died", []string{"b 1 0 passed", "a 1 0", "a 2 0", "a 3 0 passed"}, true},
		{"a worker died with two tries", []string{"b 1 0 passed", "a 1 0", "a 1 0", "a 2 0 passed"}, false},
		{"a worker died, and the last try was lost with it", []string{"b 1 0 passed", "a 1 0"}, true},
		{"no other agent", []string{"a 1 0", "a 1 1", "a 1 2"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBlame()
			tries := map[string][]schema.SuiteTry{}
			for i, word := range tt.tries {
				var agent, worker, how string
				var stops int
				_, _ = fmt.Sscan(word, &agent, &worker, &stops, &how)
				try := schema.SuiteTry{Try: len(tries[agent]) + 1, RunID: fmt.Sprint(i), Host: &schema.SuiteHost{},
					WorkerProcess: worker, WorkerStops: stops, Verdict: schema.SuitePassed}
				if how == "" {
					try.Verdict, try.Class = schema.SuiteInfrastructure, schema.SuiteWorkerLost
				}
				tries[agent] = append(tries[agent], try)
				b.add(Attempt{Task: "t", Agent: agent, Attempt: 1}, &try)
			}
			if try, why := b.try(Attempt{Task: "t", Agent: "a", Attempt: 1}, tries["a"]); (try != nil) != tt.blamed {
				t.Errorf("the agent is blamed for %v: %s", try, why)
			}
		})
	}
}
