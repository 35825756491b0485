//go:build linux

package suite

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// notes tells the user something. Nil tells nobody.
type notes func(string)

func (n notes) say(format string, args ...any) {
	if n != nil {
		n(fmt.Sprintf(format, args...))
	}
}

// machines knows on which machines tries began, and with which programs of the agents.
type machines struct {
	note     notes
	hosts    map[schema.SuiteHost]bool
	programs map[string]string // digests, by agent
}

func newMachines(note notes) *machines {
	return &machines{note: note, hosts: map[schema.SuiteHost]bool{}, programs: map[string]string{}}
}

// add adds a machine. It tells the user how the machine differs from the others.
func (m *machines) add(agent string, h schema.SuiteHost) {
	if m.hosts[h] {
		return
	}
	for other := range m.hosts {
		if other.AssayRun != h.AssayRun || other.Kernel != h.Kernel {
			m.note.say("%s has %s on %s, but %s has %s on %s: their results may differ", h.Worker, h.AssayRun, h.Kernel,
				other.Worker, other.AssayRun, other.Kernel)
			break
		}
	}
	if before, ok := m.programs[agent]; ok && before != h.AgentDigest {
		m.note.say("the program of the agent %s on %s differs from that on another worker", agent, h.Worker)
	}
	m.hosts[h], m.programs[agent] = true, h.AgentDigest
}

// sorted lists the machines.
func (m *machines) sorted() []schema.SuiteHost {
	all := slices.Collect(maps.Keys(m.hosts))
	slices.SortFunc(all, func(a, b schema.SuiteHost) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.AssayRun, b.AssayRun),
			cmp.Compare(a.Kernel, b.Kernel),
			cmp.Compare(a.AgentDigest, b.AgentDigest))
	})
	return all
}

// remoteWorker is a worker of another process.
type remoteWorker struct {
	name      string
	slots     int
	lastHeard time.Time
}

// maxWorkers and maxSlots limit what workers can claim.
const maxWorkers, maxSlots = 10_000, 10_000

// fleet knows the workers, and how many tries they run at once.
type fleet struct {
	own      int // slots of this process
	lease    time.Duration
	now      func() time.Time
	note     notes
	workers  map[string]*remoteWorker // of other processes, by instance
	saidNone bool                     // the user was told that there are no workers, and there still are none
}

func newFleet(own int, lease time.Duration, now func() time.Time, note notes) *fleet {
	return &fleet{own: own, lease: lease, now: now, note: note, workers: map[string]*remoteWorker{}}
}

// heard records a heartbeat of a worker in another process, or that it leaves.
func (f *fleet) heard(name string, h *hello, refused string) {
	known := f.workers[h.Instance]
	slots := min(h.Slots, maxSlots)
	switch {
	case known == nil && len(f.workers) >= maxWorkers:
		return
	case known == nil && refused != "":
		f.note.say("the worker %s gets no work: %s", name, refused)
	case known == nil && slots <= 0:
		return
	case known == nil:
		f.note.say("the worker %s joins and runs %s at once", name, schema.Count(slots, "attempt", "attempts"))
	case slots <= 0 && known.slots > 0:
		f.note.say("the worker %s leaves", name)
	}
	f.workers[h.Instance] = &remoteWorker{name, max(0, slots), f.now()} // one that leaves stays until expire
}

// capacity is how many tries may be open. judging are the slots of this process in which attempts are judged again.
func (f *fleet) capacity(judging int) int {
	n := max(0, f.own-judging)
	for _, w := range f.workers {
		n += 2 * w.slots
	}
	if n > 0 || f.own > 0 {
		f.saidNone = false
	} else if !f.saidNone {
		f.saidNone = true
		f.note.say("there are no workers yet: attempts begin when one joins")
	}
	return n
}

// extend takes a time in which no worker could be heard from their silence.
func (f *fleet) extend(gap time.Duration) {
	for _, w := range f.workers {
		w.lastHeard = w.lastHeard.Add(gap)
	}
}

// expire removes the workers that were silent for a lease. While the carrier is not up, none can be heard.
func (f *fleet) expire(up bool) {
	now := f.now()
	for instance, w := range f.workers {
		if !up {
			w.lastHeard = now
		} else if now.Sub(w.lastHeard) >= f.lease {
			delete(f.workers, instance)
			if w.slots > 0 {
				f.note.say("the worker %s has been silent for %s: it is considered lost", w.name, f.lease)
			}
		}
	}
}
