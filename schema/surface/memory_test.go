package surface

import (
	"fmt"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
)

// What a surface keeps in memory stops growing, whatever the run does: sets go to a file, each other table has its
// bound.
func TestALongRunTakesNoMoreMemory(t *testing.T) {
	layertest.Host(t)
	b := newBuilder("r", t.TempDir(), 64<<10)
	defer b.Close()
	const rounds, processes = 8, 20_000 // in half of them, each table is full
	var most [2]int                     // in each half
	unique := uint64(0)
	for round := range rounds {
		for range processes {
			unique++
			name := fmt.Sprintf("%d-%d", unique*2654435761%(1<<32), unique)
			e := schema.KernelEvent{PID: uint32(unique % 30_000), ExecID: unique, HasResult: true}
			made, gone, temp, run, peer, end := e, e, e, e, e, e
			made.Kind, made.Value, made.Flags, made.Created = schema.KindOpen, "/w/"+name, 0o101, true
			temp.Kind, temp.Value, temp.Flags = schema.KindOpen, fmt.Sprintf("/tmp/tmp.%010d", unique), 0o302
			temp.Created = true
			gone.Kind, gone.Value = schema.KindUnlink, temp.Value
			run.Kind, run.Value, run.Argv = schema.KindExec, "/usr/bin/perl", []string{"perl", name, "x" + name}
			if end.Kind = schema.KindExit; unique%100 == 0 {
				end.Kind = schema.KindFork // it is not seen to end
			}
			peer.Kind, peer.Remote = schema.KindConnect, fmt.Sprintf("10.%d.%d.1:443", unique>>8&255, unique&255)
			for _, e := range []schema.KernelEvent{run, made, temp, gone, peer, end} {
				if err := b.Add(&e, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		half := round / (rounds / 2)
		most[half] = max(most[half], leaktest.Entries(b))
	}
	t.Logf("%d entries", most[1])
	if most[1] > most[0]*105/100 {
		t.Errorf("%d entries after %d processes, and %d after half of them", most[1], unique, most[0])
	}
}
