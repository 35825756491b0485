//go:build linux

package suite

import (
	"fmt"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// TestSilences has workers that are silent and go on. A word is "AGENT WORKER", for a try of the agent's that was lost
// with the worker, or "AGENT WORKER passed". All tries of an agent are at one task.
func TestSilences(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tries  []string
		blamed bool // the agent a
	}{
		{"twice with this agent and never without", []string{"b 1 passed", "a 1", "a 1 passed", "a 1",
			"a 1 passed"}, true},
		{"also on different workers", []string{"b 1 passed", "a 1", "b 1 passed", "a 2", "b 2 passed"}, true},
		{"once", []string{"b 1 passed", "a 1", "b 1 passed"}, false},
		{"once on two workers at the same time", []string{"b 1 passed", "a 1", "a 2", "b 1 passed",
			"b 2 passed"}, false},
		{"twice on two workers at the same time", []string{"b 1 passed", "a 1", "a 2", "b 1 passed", "b 2 passed",
			"a 1", "a 2", "b 2 passed", "b 1 passed"}, true},
		{"twice, and another agent lost a try on the same worker", []string{"a 1", "b 1", "a 1 passed", "a 1", "b 1",
			"a 1 passed"}, false},
		{"twice, and another agent lost a try on another worker", []string{"a 1", "b 2", "a 1 passed",
			"b 2 passed", "a 1",
			"b 2", "b 2 passed", "a 1 passed"}, false},
		{"twice, and once another worker was silent with another agent", []string{"b 2", "a 1", "a 1 passed",
			"b 2 passed",
			"a 1", "a 1 passed"}, false},
		{"a silence and a death", []string{"b 1 passed", "a 1", "a 1 passed", "a 1"}, true},
		{"a worker died, and the last try was lost with it", []string{"b 1 passed", "a 1"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBlame()
			tries := map[string][]schema.SuiteTry{}
			for _, word := range tt.tries {
				var agent, worker, how string
				_, _ = fmt.Sscan(word, &agent, &worker, &how)
				try := schema.SuiteTry{Try: len(tries[agent]) + 1, Host: &schema.SuiteHost{}, WorkerProcess: worker,
					Verdict: schema.SuitePassed}
				if how == "" {
					try.Verdict, try.Class = schema.SuiteInfrastructure, schema.SuiteWorkerLost
				}
				tries[agent] = append(tries[agent], try)
				b.add(Attempt{Task: "t", Agent: agent, Attempt: 1}, []schema.SuiteTry{try})
			}
			if try, why := b.of(Attempt{Task: "t", Agent: "a", Attempt: 1}, tries["a"]); (try != nil) != tt.blamed {
				t.Errorf("the agent is blamed for %v: %s", try, why)
			}
		})
	}
}
