//go:build linux

package suite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// TestSilences has workers that are silent and go on. A step is "AGENT WORKER", for a try of the agent's that was lost
// with the worker; "AGENT passed"; "back WORKER", for a worker that goes on; or "stopped WORKER", if it was stopped.
// All tries of an agent are at one task.
func TestSilences(t *testing.T) {
	for _, tt := range []struct {
		name   string
		steps  []string
		blamed bool // the agent a
	}{
		{"stopped twice with this agent and never without",
			[]string{"a 1", "stopped 1", "b passed", "a 1", "stopped 1", "a passed"}, true},
		{"stopped once", []string{"a 1", "stopped 1", "b passed", "a passed"}, false},
		{"stopped twice, and once with another agent",
			[]string{"a 1", "stopped 1", "b 1", "stopped 1", "a 1", "stopped 1", "b passed", "a passed"}, false},
		{"without network, twice", []string{"a 1", "back 1", "b passed", "a 1", "back 1", "a passed"}, false},
		{"stopped once, and a worker died", []string{"a 1", "a 2", "stopped 1", "b passed", "a passed"}, false},
		{"two workers died", []string{"b passed", "a 1", "a 2", "a passed"}, true},
		{"a worker died with two tries", []string{"b passed", "a 1", "a 1", "a passed"}, false},
		{"a worker died, and the last try was lost with it", []string{"b passed", "a 1"}, true},
		{"without network at the last try", []string{"b passed", "a 1", "back 1"}, false},
		{"no other agent", []string{"a 1", "stopped 1", "a 1", "stopped 1", "a 1"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBlame()
			tries := map[string][]schema.SuiteTry{}
			for i, step := range tt.steps {
				who, worker, _ := strings.Cut(step, " ")
				if who == "back" || who == "stopped" {
					b.lives(worker, who == "stopped")
					continue
				}
				try := schema.SuiteTry{Try: len(tries[who]) + 1, RunID: fmt.Sprint(i), Host: &schema.SuiteHost{},
					WorkerProcess: worker, Verdict: schema.SuiteInfrastructure, Class: schema.SuiteWorkerLost}
				if worker == "passed" {
					try.Verdict, try.Class = schema.SuitePassed, ""
				}
				tries[who] = append(tries[who], try)
				b.add(Attempt{Task: "t", Agent: who, Attempt: 1}, &try)
			}
			if try, why := b.try(Attempt{Task: "t", Agent: "a", Attempt: 1}, tries["a"]); (try != nil) != tt.blamed {
				t.Errorf("the agent is blamed for %v: %s", try, why)
			}
		})
	}
}
