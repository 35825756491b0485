//go:build linux

package suite

import (
	"fmt"

	"github.com/assay-run/assay-run/schema"
)

// RuleProvokes is the rule of the suspicion that an agent provokes failures that look like the machine's.
const RuleProvokes = "provokes_infrastructure"

// blame knows which infrastructure failures an agent may have caused: those after its start that nobody else is known
// to have caused. It counts them by events. Tries that were lost with one worker are one event.
//
// A worker that was silent and then goes on has not died, so its event is forgotten: a network or a stopped machine was
// the cause.
//
// An agent is blamed at a task if there were two events of a class with it at this task, and none without it, in a
// suite where another agent or task began: without others there is nothing to compare with. All its attempts there
// with such a try count as failed then, also if a later try passed, so that an agent gains nothing when
// it ends what would have failed. With fewer events, an attempt that ends so counts as failed; one that is tried
// again does not.
type blame struct {
	events map[string]map[string]map[string]bool // by class and event: the agents
	at     map[cell]map[string]map[string]bool   // by cell and class: the events
	began  map[cell]bool                         // a try began on a worker
}

// mayBeAgents reports whether the agent may have caused that the try failed.
func mayBeAgents(t *schema.SuiteTry) bool {
	return t.CausedBy == schema.CausedByAgent || t.Verdict == schema.SuiteInfrastructure && t.CausedBy == "" &&
		t.Host != nil && t.Class != schema.SuiteInterrupted && t.Class != schema.SuiteNotBegun
}

func newBlame() *blame {
	return &blame{map[string]map[string]map[string]bool{}, map[cell]map[string]map[string]bool{}, map[cell]bool{}}
}

// add counts the tries of an attempt, in the order in which they ended.
func (b *blame) add(a Attempt, tries []schema.SuiteTry) {
	for i := range tries {
		t := &tries[i]
		if t.Host != nil {
			b.began[cell{a.Task, a.Agent}] = true
		}
		if t.Class != schema.SuiteWorkerLost {
			b.lives(t.WorkerProcess)
		}
		if t.CausedBy != "" || !mayBeAgents(t) {
			continue
		}
		event := t.RunID
		if t.Class == schema.SuiteWorkerLost && t.WorkerProcess != "" {
			event = t.WorkerProcess
		}
		at := cell{a.Task, a.Agent}
		mark(submap(b.events, t.Class), event, a.Agent)
		mark(submap(b.at, at), t.Class, event)
	}
}

// lives forgets that a worker was lost.
func (b *blame) lives(process string) {
	if process == "" {
		return
	}
	delete(b.events[schema.SuiteWorkerLost], process)
	for _, classes := range b.at {
		delete(classes[schema.SuiteWorkerLost], process)
	}
}

// compares reports whether another agent or task than that of at began.
func (b *blame) compares(at cell) bool { return len(b.began) > 1 || len(b.began) == 1 && !b.began[at] }

func submap[K comparable, V any](m map[K]map[string]V, key K) map[string]V {
	if m[key] == nil {
		m[key] = map[string]V{}
	}
	return m[key]
}

func mark(m map[string]map[string]bool, key, value string) { submap(m, key)[value] = true }

// proven reports whether nothing more must be learned about an attempt: the agent is blamed for one of its tries.
func (b *blame) proven(a Attempt, tries []schema.SuiteTry) bool {
	t, _ := b.of(a, tries)
	return t != nil && (t.CausedBy == schema.CausedByAgent || len(b.at[cell{a.Task, a.Agent}][t.Class]) > 1)
}

// of returns the try because of which the attempt counts as failed, and why; nil if there is none.
func (b *blame) of(a Attempt, tries []schema.SuiteTry) (*schema.SuiteTry, string) {
	for i := range tries {
		t := &tries[i]
		if t.CausedBy == schema.CausedByAgent {
			return t, t.Reason
		}
		if t.CausedBy != "" || !mayBeAgents(t) || b.without(t.Class, a.Agent) ||
			!b.compares(cell{a.Task, a.Agent}) {
			continue
		}
		n := len(b.at[cell{a.Task, a.Agent}][t.Class])
		if n == 0 || n < 2 && i < len(tries)-1 {
			continue
		}
		return t, fmt.Sprintf("try %d ended as %s after the agent began (%s); so did %s with this agent at this task, "+
			"and none without this agent", t.Try, t.Class, t.Reason, schema.Count(n, "failure", "failures"))
	}
	return nil, ""
}

// without reports whether there was an event of the class without the agent.
func (b *blame) without(class, agent string) bool {
	for _, agents := range b.events[class] {
		if !agents[agent] {
			return true
		}
	}
	return false
}

// provoked is the suspicion about a try that [blame.of] returned for a reason.
func provoked(why string) schema.Finding {
	return schema.Finding{Rule: RuleProvokes, Text: schema.OneLine(why), Events: []uint64{}}
}
