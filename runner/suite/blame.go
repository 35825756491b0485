//go:build linux

package suite

import (
	"fmt"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// RuleProvokes is the rule of the suspicion that an agent provokes failures that look like the machine's.
const RuleProvokes = "provokes_infrastructure"

// blame knows which infrastructure failures an agent may have caused: those after its start that nobody else is known
// to have caused. It counts them by events. Tries that were lost with one worker are one event.
//
// A worker that was silent and then goes on has not died, and says whether it was stopped. If it was, its event is one
// of another kind: the agent may have stopped it. Otherwise the network was the cause, and its event is no longer one.
//
// An agent is blamed at a task if there were two events of a kind with it at this task, and none without it, in a
// suite where another agent or task began: without others there is nothing to compare with. All its attempts there
// with such a try count as failed then, also if a later try passed, so that an agent gains nothing when
// it ends what would have failed. With fewer events, an attempt that ends so counts as failed; one that is tried
// again does not.
type blame struct {
	events []*event
	of     map[string]*event // by the id of the try's run
	silent map[string]*event // by the process of a worker that was lost and has not gone on
	began  map[cell]bool     // a try began on a worker
}

// event is something that made tries fail.
type event struct {
	kind   string // the class of the tries, or stopped
	agents map[string]bool
	cells  map[cell]bool
}

// stopped is the kind of the event that a worker was stopped and goes on.
const stopped = "worker_stopped"

// mayBeAgents reports whether the agent may have caused that the try failed.
func mayBeAgents(t *schema.SuiteTry) bool {
	return t.CausedBy == schema.CausedByAgent || t.Verdict == schema.SuiteInfrastructure && t.CausedBy == "" &&
		t.Host != nil && t.Class != schema.SuiteInterrupted && t.Class != schema.SuiteNotBegun
}

func newBlame() *blame {
	return &blame{of: map[string]*event{}, silent: map[string]*event{}, began: map[cell]bool{}}
}

// add counts a try of an attempt.
func (b *blame) add(a Attempt, t *schema.SuiteTry) {
	at := cell{a.Task, a.Agent}
	if t.Host != nil {
		b.began[at] = true
	}
	if t.CausedBy != "" || !mayBeAgents(t) {
		return
	}
	lost := t.Class == schema.SuiteWorkerLost && t.WorkerProcess != ""
	e := b.silent[t.WorkerProcess]
	if e == nil || !lost {
		e = &event{t.Class, map[string]bool{}, map[cell]bool{}}
		b.events = append(b.events, e)
	}
	if lost {
		b.silent[t.WorkerProcess] = e
	}
	e.agents[a.Agent], e.cells[at] = true, true
	b.of[t.RunID] = e
}

// lives records that a worker that may have been lost goes on, and whether it was stopped meanwhile.
func (b *blame) lives(process string, stop bool) {
	if e := b.silent[process]; e != nil {
		if e.kind = ""; stop {
			e.kind = stopped
		}
	}
	delete(b.silent, process)
}

// compares reports whether another agent or task than that of at began.
func (b *blame) compares(at cell) bool { return len(b.began) > 1 || len(b.began) == 1 && !b.began[at] }

// proven reports whether nothing more must be learned about an attempt: the agent is blamed for one of its tries.
func (b *blame) proven(a Attempt, tries []schema.SuiteTry) bool {
	t, _ := b.try(a, tries)
	return t != nil && (t.CausedBy == schema.CausedByAgent || b.with(cell{a.Task, a.Agent}, b.of[t.RunID].kind) > 1)
}

// try returns the try because of which the attempt counts as failed, and why; nil if there is none.
func (b *blame) try(a Attempt, tries []schema.SuiteTry) (*schema.SuiteTry, string) {
	at := cell{a.Task, a.Agent}
	for i := range tries {
		t := &tries[i]
		if t.CausedBy == schema.CausedByAgent {
			return t, t.Reason
		}
		e := b.of[t.RunID]
		if e == nil || e.kind == "" || b.without(e.kind, a.Agent) || !b.compares(at) {
			continue
		}
		n := b.with(at, e.kind)
		if n < 2 && i < len(tries)-1 {
			continue
		}
		return t, fmt.Sprintf("try %d ended as %s after the agent began (%s); so did %s with this agent at this task, "+
			"and none without this agent", t.Try, e.kind, t.Reason, schema.Count(n, "failure", "failures"))
	}
	return nil, ""
}

// with is how many events of a kind there were with an agent at a task.
func (b *blame) with(at cell, kind string) (n int) {
	for _, e := range b.events {
		if e.kind == kind && e.cells[at] {
			n++
		}
	}
	return n
}

// without reports whether there was an event of a kind without the agent.
func (b *blame) without(kind, agent string) bool {
	return slices.ContainsFunc(b.events, func(e *event) bool { return e.kind == kind && !e.agents[agent] })
}

// provoked is the suspicion about a try that [blame.try] returned for a reason.
func provoked(why string) schema.Finding {
	return schema.Finding{Rule: RuleProvokes, Text: schema.OneLine(why), Events: []uint64{}}
}
