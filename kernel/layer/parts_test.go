package layer

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// An event waits for earlier ones of other CPUs. A repeat takes its place where its count is given out.
func TestAWindowPutsEventsInOrder(t *testing.T) {
	w := newWindow(100, 10)
	for i, at := range []uint64{1000, 1050, 1020} {
		if !w.add(&kernel.Event{Time: at, ID: uint64(i)}) {
			t.Errorf("the event of %d is late", at)
		}
	}
	if !w.add(&kernel.Event{KernelEvent: schema.KernelEvent{Repeat: true}, Time: 900, ID: 3}) {
		t.Error("a repeat is late")
	}
	var got []uint64
	for _, now := range []uint64{1099, 1100, 1149} {
		for w.due(now) {
			h := w.pop()
			got = append(got, h.ev.ID)
			w.done(h)
		}
		got = append(got, now)
	}
	if diff := cmp.Diff([]uint64{1099, 0, 1100, 2, 1149}, got); diff != "" {
		t.Error(diff)
	}
	if w.add(&kernel.Event{Time: 1019}) || w.late != 1 || !w.passed(1019) || w.passed(1020) || w.place(5000) != 1050 {
		t.Errorf("after 1020 was handed out: %d late, place %d", w.late, w.place(5000))
	}
}

// Ancestors come first, and a process whose fork or join is seen needs no line of its own.
func TestPresentProcessesComeAfterTheirAncestors(t *testing.T) {
	pids := func(list []kernel.Present) (pids []uint32) {
		for _, p := range list {
			pids = append(pids, p.PID)
		}
		return pids
	}
	p := newPresent([]kernel.Present{{PID: 30, PPID: 20}, {PID: 20, PPID: 10}, {PID: 10, PPID: 1}, {PID: 5, PPID: 30},
		{PID: 40}, {PID: 41}}, 1000)
	fork, join := forkEvent(0, 1, 40), event(0, 41, schema.KernelEvent{Kind: schema.KindJoin})
	open := openEvent(0, 20, "/x", 0, 0)
	got := [][]uint32{pids(p.before(&fork)), pids(p.before(&join)), pids(p.before(&open)), pids(p.before(&open)),
		pids(p.all()), pids(p.all())}
	if diff := cmp.Diff([][]uint32{nil, nil, {10, 20}, nil, {30, 5}, nil}, got); diff != "" {
		t.Error(diff)
	}
	if p.overdue(1000 + 2*uint64(presentAfter/time.Nanosecond)) {
		t.Error("none is left, and one is overdue")
	}
}

// A repeat has the origin of the event that it repeats, whatever its process did since.
func TestRepeatsHaveTheOriginOfTheFirst(t *testing.T) {
	var r repeats
	first := openEvent(1, 10, "/x", 0, 0)
	first.Slot = 3
	r.keep(&first, &origin{execID: 7, class: schema.ClassLoader, toolCall: "a", boundBy: schema.BoundByEnv,
		mounts: schema.MarkMountNamespace})
	repeat, other := first, first
	repeat.Repeat, other.Repeat, other.ID = true, true, 99
	if r.knows(&first) || r.knows(&other) || !r.knows(&repeat) {
		t.Errorf("known: the first %t, another's repeat %t, its own %t", r.knows(&first), r.knows(&other),
			r.knows(&repeat))
	}
	e := schema.KernelEvent{Value: "/x"}
	o := r.of(&repeat)
	o.write(&e)
	want := schema.KernelEvent{Value: "/x", ExecID: 7, Class: schema.ClassLoader, ToolCallID: "a",
		BoundBy: schema.BoundByEnv, Marks: schema.MarkMountNamespace}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
}

// A runtime that came from outside sets a container up until it executes a program among other mounts.
func TestAContainerIsSetUpUntilItsProgramBegins(t *testing.T) {
	m, procs := newMounts(1), newTable(true, nil, programs{})
	c := newContainers("", "/cg/run", m, procs, nil, func(string, uint64) (uint32, uint64) { return 5, 50 })
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	asker := &process{pid: 5, start: 20}
	procs.put(asker)
	p := &process{pid: 9, mountNS: 1}
	step := func(kind schema.KernelKind, value string, mountNS uint32) string {
		ev := event(60, 9, schema.KernelEvent{Kind: kind, Value: value})
		ev.Task.CgroupID, ev.MountNS = 77, mountNS
		got := c.enter(&ev, p)
		m.enter(&ev, p)
		if kind == schema.KindJoin && c.starter(&ev, got) != asker {
			t.Error("who asked the engine is not known")
		}
		return got
	}
	if got := step(schema.KindJoin, "/cg/run/"+id, 0); got != id || !p.setup {
		t.Errorf("it joined container %q, sets it up: %t", got, p.setup)
	}
	if step(schema.KindExec, "/runc", 8); !p.setup {
		t.Error("it executed a program among the host's mounts, and has set the container up")
	}
	if step(schema.KindExec, "/app", 8); p.setup || m.marks(p) != schema.MarkMountNamespace|schema.MarkContainer {
		t.Errorf("the container's program sets it up: %t, its paths are marked %s", p.setup, m.marks(p))
	}
	if m.marks(&process{mountNS: 9, container: id}) != schema.MarkMountNamespace || m.marks(asker) != 0 {
		t.Error("other processes are marked as the container's")
	}
}

// What a process of the run does to the recorder, and to processes outside of the run, is told from the rest.
func TestReachTellsTheRecorderFromTheRun(t *testing.T) {
	procs := newTable(false, nil, programs{})
	procs.put(&process{pid: 9})
	r := newReach(5, procs, nil)
	trace := func(pid uint32) {
		ev := event(1, 9, schema.KernelEvent{Kind: schema.KindPtrace})
		ev.Syscall, ev.Args, ev.About = "ptrace", []uint64{16, uint64(pid)}, pid
		r.note(&ev, procs.byPID[9])
	}
	for _, pid := range []uint32{9, 6, 5, 5} {
		trace(pid)
	}
	if want := (Reach{Injected: true, Traced: 6, TracedTimes: 3, RecorderTraced: 2}); !cmp.Equal(want, r.did) {
		t.Error(cmp.Diff(want, r.did))
	}
}
