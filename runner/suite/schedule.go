//go:build linux

package suite

import (
	"cmp"
	"math"
	"time"

	"github.com/assay-run/assay-run/schema"
)

const (
	// minFree is how many bytes the disk must have free for a new try.
	minFree = 2 << 30
	// maxFailures is how many infrastructure failures of one class in a row stop an agent at a task.
	maxFailures = 5
	// firstPause is the pause before the second try of an attempt. Each later pause is twice as long.
	firstPause = time.Second
	// providerPauses is how many first pauses an agent's attempts wait after its provider failed. Each failure in a row
	// doubles that, maxOutage times at most.
	providerPauses, maxOutage = 5, 6
)

// cell is an agent at a task.
type cell struct{ task, agent string }

// failures are infrastructure failures of one class in a row, of this process.
type failures struct {
	inARow   int
	last     schema.SuiteTry
	instance string // of the last one's worker
}

// pace knows when an attempt may be tried again: how often it was tried, and how often the machine and the agent's
// provider failed.
type pace struct {
	maxTries int           // of an attempt
	pause    time.Duration // see firstPause
	blamed   *blame
	now      func() time.Time
	note     notes
	failures map[cell]*failures
	outages  map[string]int       // how often in a row the provider failed, by agent
	hold     map[string]time.Time // when a held agent may try again; see providerPauses
}

func newPace(maxTries int, pause time.Duration, blamed *blame, now func() time.Time, note notes) *pace {
	return &pace{maxTries: maxTries, pause: pause, blamed: blamed, now: now, note: note,
		failures: map[cell]*failures{}, outages: map[string]int{}, hold: map[string]time.Time{}}
}

// needsTry reports whether the attempt needs another try.
func (p *pace) needsTry(a *attempt) bool {
	switch {
	case a.open != nil, a.earlier != nil, a.verdict != nil && a.verdict.Verdict != schema.SuiteInfrastructure:
		return false
	}
	return a.countedTries() < p.maxTries && p.stopped(a) == nil && !p.blamed.proven(a.Attempt, a.tries)
}

// stopped returns the last of maxFailures infrastructure failures in a row, after which this process no longer tries
// the agent at the task. It returns nil while there are fewer.
func (p *pace) stopped(a *attempt) *schema.SuiteTry {
	f := p.failures[cell{a.Task, a.Agent}]
	if f == nil || f.inARow < maxFailures {
		return nil
	}
	return &f.last
}

// ready returns the attempts that may be tried now. An agent whose provider failed gets one try at a time, after a
// pause.
func (p *pace) ready(attempts []*attempt, open map[string]*try) (ready []*attempt) {
	now := p.now()
	probing := map[string]bool{}
	for _, t := range open {
		probing[t.of.Agent] = true
	}
	for _, a := range attempts {
		if !p.needsTry(a) || now.Before(a.next) {
			continue
		}
		if until, held := p.hold[a.Agent]; held {
			if now.Before(until) || probing[a.Agent] {
				continue
			}
			probing[a.Agent] = true
		}
		ready = append(ready, a)
	}
	return ready
}

// tried notes the verdict of a try, which a worker with the given instance ran.
func (p *pace) tried(a *attempt, v *schema.SuiteTry, instance string) {
	p.countFailure(a.Attempt, v, instance)
	switch {
	case v.Class == schema.SuiteProvider:
		p.outages[a.Agent]++
		a.next = p.now().Add(p.pause * providerPauses << min(p.outages[a.Agent]-1, maxOutage))
		p.hold[a.Agent] = a.next
	case v.ModelRequests > v.ModelFailed: // the provider answers again
		delete(p.outages, a.Agent)
		delete(p.hold, a.Agent)
	}
	if v.Verdict == schema.SuiteInfrastructure && v.Class != schema.SuiteProvider {
		a.next = p.now().Add(p.pause << min(len(a.tries)-a.oldTries-1, 6))
	}
}

// countFailure updates the failures in a row after a try that a worker with the given instance ran. Tries that are lost
// with the same worker count once.
func (p *pace) countFailure(a Attempt, v *schema.SuiteTry, instance string) {
	at := cell{a.Task, a.Agent}
	switch f := p.failures[at]; {
	case v.Verdict != schema.SuiteInfrastructure:
		delete(p.failures, at)
	case v.Class == schema.SuiteInterrupted, v.Class == schema.SuiteNotBegun:
	case f == nil, f.last.Class != v.Class:
		p.failures[at] = &failures{1, *v, instance}
	case v.Class == schema.SuiteWorkerLost && instance != "" && instance == f.instance:
		return
	default:
		p.failures[at] = &failures{f.inARow + 1, *v, instance}
	}
	if f := p.failures[at]; f != nil && f.inARow == maxFailures {
		p.note.say("%s is not tried at %s again: the machine failed %d times in a row (%s: %s)", a.Agent, a.Task,
			maxFailures, v.Class, v.Reason)
	}
}

// turns knows whose turn it is.
type turns struct {
	chosen  map[string]int   // how often each agent was chosen
	longest map[cell]float64 // the longest time of a try, in seconds
}

func newTurns() *turns { return &turns{chosen: map[string]int{}, longest: map[cell]float64{}} }

// took notes how long a try took.
func (t *turns) took(a Attempt, v *schema.SuiteTry) {
	if v.Seconds != nil {
		at := cell{a.Task, a.Agent}
		t.longest[at] = max(t.longest[at], *v.Seconds)
	}
}

// choose returns up to room of the attempts that are ready. tries are those that are open. Agents take turns: next is
// the agent with the fewest open tries, and among equals the one that was chosen least often. Of an agent's attempts,
// those whose time is unknown go first, then the longest by earlier tries.
func (t *turns) choose(ready []*attempt, room int, tries map[string]*try) []*attempt {
	open := map[string]int{}
	for _, try := range tries {
		open[try.of.Agent]++
	}
	var chosen []*attempt
	taken := map[*attempt]bool{}
	for len(chosen) < min(room, len(ready)) {
		var next *attempt
		for _, a := range ready {
			if !taken[a] && (next == nil || t.sooner(a, next, open)) {
				next = a
			}
		}
		taken[next] = true
		open[next.Agent]++
		t.chosen[next.Agent]++
		chosen = append(chosen, next)
	}
	return chosen
}

// sooner reports whether a goes before b. open is the number of open tries of each agent.
func (t *turns) sooner(a, b *attempt, open map[string]int) bool {
	if a.Agent != b.Agent {
		if n := cmp.Or(cmp.Compare(open[a.Agent], open[b.Agent]), cmp.Compare(t.chosen[a.Agent],
			t.chosen[b.Agent])); n != 0 {
			return n < 0
		}
	}
	return cmp.Or(-cmp.Compare(t.expected(a), t.expected(b)), cmp.Compare(a.Attempt.Attempt, b.Attempt.Attempt)) < 0
}

// expected is a logarithm of the longest time that the agent took at the task; infinity if it is unknown. It is
// rounded, so that tasks with similar times count as equal, and the first attempts at all of them go before the second
// ones.
func (t *turns) expected(a *attempt) float64 {
	if s, ok := t.longest[cell{a.Task, a.Agent}]; ok {
		return math.Round(2 * math.Log2(max(s, 0.01)))
	}
	return math.Inf(1)
}

// schedule decides which attempts are tried next.
type schedule struct {
	pace         *pace
	turns        *turns
	dir          string
	note         notes
	saidDiskFull bool // the user was told that the disk is full, and it still is
}

// newSchedule makes the schedule of a suite whose attempts may have been tried before.
func newSchedule(dir string, attempts []*attempt, p *pace, note notes) *schedule {
	s := &schedule{pace: p, turns: newTurns(), dir: dir, note: note}
	for _, a := range attempts {
		for i := range a.tries {
			s.turns.took(a.Attempt, &a.tries[i])
		}
	}
	return s
}

// next returns up to room attempts to try now: none while the disk is full.
func (s *schedule) next(attempts []*attempt, open map[string]*try, room int) []*attempt {
	if room <= 0 {
		return nil
	}
	ready := s.pace.ready(attempts, open)
	if len(ready) == 0 {
		return nil
	}
	if free := freeBytes(s.dir); free < minFree {
		if !s.saidDiskFull {
			s.note.say("%s has less than 2 GiB free: no attempt begins until it has more", s.dir)
		}
		s.saidDiskFull = true
		return nil
	}
	s.saidDiskFull = false
	return s.turns.choose(ready, room, open)
}
