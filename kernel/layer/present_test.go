package layer

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Each process from before joins once, after its parent: at its first event, or when
// nothing has come for a while. One whose fork was seen all the same is not doubled.
func TestProcessesFromBefore(t *testing.T) {
	b, lines := collect(t, Options{Foreign: true, Begin: at(0), Present: []kernel.Present{
		{PID: 10, PPID: 1, Exe: "/bin/sh", Argv: []string{"sh"}, CgroupID: 7},
		{PID: 11, PPID: 10, Exe: "/bin/sleep", CgroupID: 7},
		{PID: 12, PPID: 10, CgroupID: 7}, {PID: 13, PPID: 12, Exe: "/bin/idle", CgroupID: 7},
	}})
	push(t, b, openEvent(100, 11, "/a", 0, 0), forkEvent(110, 10, 12), exitEvent(120, 11, 0))
	quiet := at(120) + uint64(2*presentAfter)
	for range 2 {
		if err := b.Tick(quiet); err != nil {
			t.Fatal(err)
		}
	}
	late := event(quiet-start+uint64(time.Second), 13, schema.KernelEvent{Kind: schema.KindOpen, Value: "/b"})
	late.Task.Start = 0
	push(t, b, late)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range *lines {
		got = append(got, fmt.Sprintf("%s pid=%d ppid=%d id=%d from=%d %s%s %q late=%v", e.Kind, e.PID, e.PPID,
			e.ExecID, e.ParentExecID, e.Value, e.Exe, e.Argv, e.Late))
	}
	want := []string{
		`join pid=10 ppid=1 id=1 from=0 /bin/sh ["sh"] late=false`,
		`join pid=11 ppid=10 id=2 from=1 /bin/sleep [] late=false`,
		`openat pid=11 ppid=0 id=2 from=0 /a [] late=false`,
		`fork pid=12 ppid=10 id=3 from=1  [] late=false`,
		`exit pid=11 ppid=0 id=2 from=0  [] late=false`,
		`join pid=13 ppid=12 id=4 from=3 /bin/idle [] late=false`,
		`openat pid=13 ppid=0 id=4 from=0 /b [] late=false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if s := b.Stats(); s.Joins != 3 || s.Added != 3 || s.Alive != 3 || s.MissedExits != 0 ||
		s.ByClass[schema.ClassRunner] != 0 {
		t.Errorf("stats are %+v", s)
	}
}
