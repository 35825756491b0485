//go:build linux

package suite

import (
	"fmt"
	"maps"

	"github.com/assay-run/assay-run/schema"
)

// RuleProvokes is the rule of the suspicion that an agent provokes failures that look like the machine's.
const RuleProvokes = "provokes_infrastructure"

// blame knows which infrastructure failures an agent may have caused: those after its start that nobody else is known
// to have caused. It counts them by events. Tries that were lost with one worker are one event.
//
// A worker that was silent and then goes on has not died: a network, a stopped machine or the agent was the cause. Its
// silence is an event only if no other agent was harmed at the same time, on this worker or on another one. Silences at
// the same time are one event. One alone makes no attempt fail.
//
// An agent is blamed at a task if there were two events of a class with it at this task, and none without it, in a
// suite where another agent or task began: without others there is nothing to compare with. All its attempts there
// with such a try count as failed then, also if a later try passed, so that an agent gains nothing when
// it ends what would have failed. With fewer events, an attempt that ends so counts as failed; one that is tried
// again does not.
type blame struct {
	events   map[string]map[string]map[string]bool // by class and event: the agents
	at       map[cell]map[string]map[string]bool   // by cell and class: the events
	began    map[cell]bool                         // a try began on a worker
	tries    int                                   // how many were added
	silences []*silence                            // of workers, in the order in which they began
}

// silence is a time during which a worker was not heard. from and to count the tries that were added before it began
// and before it ended; to is zero for one that has not ended.
type silence struct {
	event, process string
	from, to       int
	agents         map[string]bool // whose tries were lost
	forgotten      bool            // it is no event
}

// mayBeAgents reports whether the agent may have caused that the try failed.
func mayBeAgents(t *schema.SuiteTry) bool {
	return t.CausedBy == schema.CausedByAgent || t.Verdict == schema.SuiteInfrastructure && t.CausedBy == "" &&
		t.Host != nil && t.Class != schema.SuiteInterrupted && t.Class != schema.SuiteNotBegun
}

func newBlame() *blame {
	return &blame{events: map[string]map[string]map[string]bool{}, at: map[cell]map[string]map[string]bool{},
		began: map[cell]bool{}}
}

// add counts the tries of an attempt, in the order in which they ended.
func (b *blame) add(a Attempt, tries []schema.SuiteTry) {
	for i := range tries {
		t := &tries[i]
		b.tries++
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
			s := b.silence(t.WorkerProcess)
			if s == nil {
				s = &silence{event: fmt.Sprint(t.WorkerProcess, " ", b.tries), process: t.WorkerProcess, from: b.tries,
					agents: map[string]bool{}}
				b.silences = append(b.silences, s)
			}
			s.agents[a.Agent] = true
			event = s.event
		}
		at := cell{a.Task, a.Agent}
		mark(submap(b.events, t.Class), event, a.Agent)
		mark(submap(b.at, at), t.Class, event)
	}
}

// silence returns the silence of a worker's process that has not ended, or nil.
func (b *blame) silence(process string) *silence {
	for _, s := range b.silences {
		if s.process == process && s.to == 0 {
			return s
		}
	}
	return nil
}

// lives ends the silence of a worker, and forgets it if others were harmed at the same time, or if another one counts
// for both.
func (b *blame) lives(process string) {
	s := b.silence(process)
	if s == nil {
		return
	}
	s.to = b.tries
	forget := len(s.agents) > 1
	for _, o := range b.silences {
		if o == s || o.from < s.from && o.to < s.from { // another time, or it died before
			continue
		}
		others := !maps.Equal(o.agents, s.agents)
		if others && o.to > 0 {
			b.forget(o)
		}
		forget = forget || others || !o.forgotten
	}
	if forget {
		b.forget(s)
	}
}

// forget makes a silence no event.
func (b *blame) forget(s *silence) {
	s.forgotten = true
	delete(b.events[schema.SuiteWorkerLost], s.event)
	for _, classes := range b.at {
		delete(classes[schema.SuiteWorkerLost], s.event)
	}
}

// ended reports whether all events are silences that ended.
func (b *blame) ended(events map[string]bool) bool {
	for _, s := range b.silences {
		if s.to == 0 && events[s.event] {
			return false
		}
	}
	return true
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
		events := b.at[cell{a.Task, a.Agent}][t.Class]
		n := len(events)
		if n == 0 || n < 2 && (i < len(tries)-1 || t.Class == schema.SuiteWorkerLost && b.ended(events)) {
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
