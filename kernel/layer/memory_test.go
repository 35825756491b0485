package layer

import (
	"fmt"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// What a recorder remembers of a run stops growing, whatever the run does: each table has its bound.
func TestALongRunTakesNoMoreMemory(t *testing.T) {
	layertest.Host(t)
	b := NewBuilder(Options{RunID: "r", Start: start, Sink: func(*schema.KernelEvent) error { return nil }})
	const rounds, processes = 8, 20_000 // in half of them, each table is full
	var most [2]int                     // in each half
	now, unique := uint64(0), uint32(0)
	for round := range rounds {
		for range processes {
			unique++
			now += 2000
			pid := unique%30_000 + 10
			name := fmt.Sprintf("/w/%d-%d", unique*2654435761, unique)
			started := func(ev kernel.Event) kernel.Event {
				ev.Task.Start, ev.Task.PPID = uint64(unique), 1
				return ev
			}
			fork := forkEvent(now, 1, pid)
			fork.Child.Start = uint64(unique)
			thread := started(forkEvent(now+1, pid, 40_000+unique))
			thread.Thread = true
			made := started(openEvent(now+3, pid, name, 0o101, 0))
			made.Created = true
			changed := started(event(now+4, pid, schema.KernelEvent{Kind: schema.KindRename, Value: name,
				Target: name + "~", HasResult: true}))
			changed.First, changed.Last, changed.Way = changed.Time, changed.Time, way(unique<<1|1)
			host := fmt.Sprintf("h%d.example.", unique)
			at := fmt.Sprintf("10.%d.%d.%d", unique>>16&255, unique>>8&255, unique&255)
			push(t, b, fork, thread, started(execEvent(now+2, pid, "/bin/"+host, "do", name, host)), made, changed,
				dnsEvent(now+5, answer(t, host, host+" 1 A "+at), 17, true), connectEvent(now+6, at+":443"))
			if unique%100 > 0 { // the end of one in a hundred is not seen
				push(t, b, started(exitEvent(now+7, pid, 0)))
			}
		}
		half := round / (rounds / 2)
		most[half] = max(most[half], leaktest.Entries(b))
	}
	t.Logf("%d entries", most[1])
	if most[1] > most[0]*101/100 {
		t.Errorf("%d entries after %d processes, and %d after half of them", most[1], unique, most[0])
	}
}
