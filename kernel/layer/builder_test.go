package layer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

func TestBuilderKeepsTheProcessTable(t *testing.T) {
	b, lines := collect(t, Options{})
	failed := event(25, 10, schema.KernelEvent{Kind: schema.KindExecFailed, Value: "/x", HasResult: true, Result: -2,
		UserMemory: true})
	failed.Errno = 2
	// another process with the first child's pid
	again := event(80, 11, schema.KernelEvent{Kind: schema.KindOpen, Value: "/b"})
	again.TID, again.Task.Start = 12, 999
	push(t, b, forkEvent(10, 5, 10), execEvent(20, 10, "/bin/sh", "sh", "", "-c"), failed, forkEvent(30, 10, 11),
		execEvent(40, 11, "/bin/ls", "ls"),
		exitEvent(50, 11, 3), execEvent(60, 10, "/bin/cat", "cat"), openEvent(61, 10, "/a", 0, 0), exitEvent(70, 10, 0),
		again)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range *lines {
		got = append(got, fmt.Sprintf("%d %s pid=%d ppid=%d id=%d from=%d %s %q", e.TNS, e.Kind, e.PID, e.PPID,
			e.ExecID, e.ParentExecID, e.Value, e.Argv))
	}
	want := []string{
		`10 fork pid=10 ppid=5 id=1 from=0  []`,
		`20 exec pid=10 ppid=1 id=2 from=1 /bin/sh ["sh" "" "-c"]`,
		`25 exec_failed pid=10 ppid=0 id=2 from=0 /x []`,
		`30 fork pid=11 ppid=10 id=3 from=2  []`,
		`40 exec pid=11 ppid=1 id=4 from=3 /bin/ls ["ls"]`,
		`50 exit pid=11 ppid=0 id=4 from=0  []`,
		`60 exec pid=10 ppid=1 id=5 from=2 /bin/cat ["cat"]`,
		`61 openat pid=10 ppid=0 id=5 from=0 /a []`,
		`70 exit pid=10 ppid=0 id=5 from=0  []`,
		`80 join pid=11 ppid=0 id=6 from=0  []`,
		`80 openat pid=11 ppid=0 id=6 from=0 /b []`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if e := (*lines)[5]; e.WaitStatus != 3<<8 {
		t.Errorf("exit status is %#x, want exit code 3", e.WaitStatus)
	}
	s := b.Stats()
	if s.Forks != 2 || s.Exits != 2 || s.Joins != 1 || s.Alive != 1 || s.Added != 1 || s.MissedExits != 0 {
		t.Errorf("stats are %+v", s)
	}
	if c, want := b.Counts(), (schema.LayerCounts{Seen: 11, Written: 11}); c != want {
		t.Errorf("counts are %+v, want %+v", c, want)
	}
}

// Between fork and exec the first process is the runner's, and so is the shim
// that may come before the command.
func TestWhatTheRunnerDoesBeforeTheCommand(t *testing.T) {
	b, lines := collect(t, Options{Shim: func(argv []string) bool { return len(argv) > 1 && argv[1] == "join" }})
	fork := forkEvent(0, 0, 10) // by somebody outside of the run
	chdir := openEvent(10, 10, "/srv", 0, 0)
	chdir.Kind = schema.KindChdir
	push(t, b, fork, chdir, shimEvent(20), openEvent(30, 10, "/sys/fs/cgroup/pids/x/cgroup.procs", 1, 0),
		execEvent(40, 10, "/bin/sh", "sh"), openEvent(50, 10, "/srv/a", 0, 0),
		shimEvent(60), openEvent(70, 10, "/srv/b", 0, 0))
	b.Close()
	var got []string
	for _, e := range *lines {
		got = append(got, fmt.Sprint(e.Kind, " ", e.Value, " ", e.Class))
	}
	want := []string{
		"fork  agent", "chdir /srv runner", "exec /bin/assay-run runner",
		"openat /sys/fs/cgroup/pids/x/cgroup.procs runner",
		"exec /bin/sh agent", "openat /srv/a agent",
		"exec /bin/assay-run agent", "openat /srv/b agent", // whoever pretends later is the agent
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBuilderOrdersEventsOfAllCPUs(t *testing.T) {
	b, lines := collect(t, Options{Window: 100})
	push(t, b, forkEvent(0, 1, 10))
	for _, at := range []uint64{50, 30, 40, 30, 90, 20, 200, 150, 140, 260} {
		push(t, b, openEvent(at, 10, fmt.Sprint("/", at), 0, 0))
	}
	push(t, b, openEvent(60, 10, "/late", 0, 0)) // 150 has been written
	if err := b.Tick(at(300)); err != nil {
		t.Fatal(err)
	}
	if n := len(*lines); n != 11 {
		t.Errorf("%d lines at 300, want all but the one of 260", n)
	}
	b.Close()
	var got []int64
	for _, e := range *lines {
		if e.Late {
			if e.Value != "/late" {
				t.Errorf("%s is late", e.Value)
			}
			continue
		}
		got = append(got, e.TNS)
	}
	if want := []int64{0, 20, 30, 30, 40, 50, 90, 140, 150, 200, 260}; !slices.Equal(got, want) {
		t.Errorf("order is %v, want %v", got, want)
	}
	if s := b.Stats(); s.Late != 1 {
		t.Errorf("%d late, want 1", s.Late)
	}
}

func TestBuilderHoldsNoMoreThanItMay(t *testing.T) {
	b, lines := collect(t, Options{Window: time.Hour, MaxHeld: 10})
	push(t, b, forkEvent(0, 1, 10))
	for i := range uint64(100) {
		push(t, b, openEvent(i, 10, "/x", 0, 0))
	}
	if held := 101 - len(*lines); held != 10 {
		t.Errorf("%d events are held, want 10", held)
	}
	big := execEvent(200, 10, "/bin/x", string(make([]byte, 128<<10)))
	for range 100 {
		push(t, b, big)
	}
	if b.order.bytes > maxHeldBytes+256<<10 {
		t.Errorf("%d bytes are held", b.order.bytes)
	}
}

func TestBuilderCopiesWhatTheReaderReuses(t *testing.T) {
	b, lines := collect(t, Options{Window: time.Hour})
	ev := execEvent(5, 10, "/bin/sh", "one", "two")
	ev.EnvKeys = []string{"HOME"}
	if err := b.Push(&ev); err != nil {
		t.Fatal(err)
	}
	ev = kernel.Event{}
	b.Close()
	e := (*lines)[len(*lines)-1]
	if e.Value != "/bin/sh" || e.Cwd != "/srv" || !slices.Equal(e.Argv, []string{"one", "two"}) ||
		!slices.Equal(e.EnvKeys, []string{"HOME"}) {
		t.Errorf("the line is %+v", e)
	}
}

func TestRepeatsBelongToWhatTheyRepeat(t *testing.T) {
	b, lines := collect(t, Options{})
	cache := openEvent(11, 10, "/etc/ld.so.cache", cloexec, 0)
	lib := openEvent(12, 10, "/usr/lib/x86_64-linux-gnu/libc.so.6", cloexec, 0)
	lib.Slot = 7
	repeat := lib
	repeat.Repeat, repeat.Time, repeat.Count, repeat.First, repeat.Last = true, at(500), 41, at(13), at(400)
	push(t, b, forkEvent(0, 1, 10), execEvent(10, 10, "/bin/cat"), cache, lib, openEvent(20, 10, "/data", 0, 0),
		execEvent(30, 10, "/bin/dog"), repeat)
	drained := repeat // at the end, when its own time is long past
	drained.Time = at(14)
	push(t, b, openEvent(600e6, 10, "/z", 0, 0), drained)
	b.Close()
	if e := (*lines)[len(*lines)-1]; e.Late || e.TNS != 600e6 || !e.Repeat {
		t.Errorf("the drained repeat is %+v", e)
	}
	e := (*lines)[len(*lines)-3]
	if !e.Repeat || e.Count != 41 || e.TFirstNS != 13 || e.TLastNS != 400 || e.ExecID != 2 ||
		e.Class != schema.ClassLoader {
		t.Errorf("the repeat is %+v", e)
	}
	if c, want := b.Counts(), (schema.LayerCounts{Seen: 89, Written: 9, Coalesced: 80}); c != want {
		t.Errorf("counts are %+v, want %+v", c, want)
	}
}

// However much came between, and whatever took another slot, a repeat is of the
// program that did it and not of the one that the process executed since.
func TestARepeatIsOfAnEarlierProgram(t *testing.T) {
	b, lines := collect(t, Options{})
	first := openEvent(11, 10, "/x", 0, 0)
	first.Slot = 1
	push(t, b, forkEvent(0, 1, 10), execEvent(10, 10, "/bin/cat"), first, execEvent(30, 10, "/bin/dog"))
	for i := range 20_000 {
		ev := openEvent(uint64(40+i), 10, "/y", 0, 0)
		ev.Slot = uint32(2 + i%5000)
		push(t, b, ev)
	}
	first.Repeat, first.Time = true, at(40_000)
	push(t, b, first)
	b.Close()
	if e := (*lines)[len(*lines)-1]; !e.Repeat || e.ExecID != 2 {
		t.Errorf("the repeat is %+v", e)
	}
}

func TestCountsAddUpWhateverHappensToALine(t *testing.T) {
	full := errors.New("no space")
	for name, o := range map[string]Options{
		"all is written":   {},
		"the disk is full": {Sink: func(e *schema.KernelEvent) error { return full }},
	} {
		b, _ := collect(t, o)
		if o.Sink != nil {
			b.out.sink = o.Sink
		}
		repeat := openEvent(20, 10, "/x", 0, 0)
		repeat.Repeat, repeat.Count, repeat.Time = true, 7, at(40)
		for _, ev := range []kernel.Event{forkEvent(0, 1, 10), execEvent(1, 10, "/bin/x"),
			openEvent(5, 10, "/etc/ld.so.cache", cloexec, 0), openEvent(20, 10, "/x", 0, 0), repeat,
			openEvent(50, 77, "/y", 0, 0)} {
			if ev.Count == 0 {
				ev.Count = 1
			}
			b.Push(&ev)
		}
		if err := b.Close(); o.Sink != nil && !errors.Is(err, full) {
			t.Errorf("%s: the sink's error is %v", name, err)
		}
		c, s := b.Counts(), b.Stats()
		if s.Received+s.Added != 7 || s.Received+s.Added != s.Written+s.Filtered+s.Dropped {
			t.Errorf("%s: %+v does not add up to 7 records", name, s)
		}
		if c.Seen != 13 || c.Seen != c.Written+c.Coalesced+c.Filtered+c.Dropped {
			t.Errorf("%s: %+v does not add up to 13", name, c)
		}
		if o.Sink != nil && c.Dropped != 13 {
			t.Errorf("%s: %+v, want all dropped", name, c)
		}
	}
}

func TestToolCallsPassToDescendants(t *testing.T) {
	b, lines := collect(t, Options{})
	ex := execEvent(5, 10, "/bin/tool")
	ex.CallInEnv = "tc_1"
	push(t, b, forkEvent(0, 1, 10), ex, forkEvent(6, 10, 11), openEvent(7, 11, "/x", 0, 0),
		execEvent(8, 11, "/bin/sub"))
	b.Close()
	for i, want := range []string{"", "env", "lineage", "lineage", "lineage"} {
		if e := (*lines)[i]; e.BoundBy != want || (want != "") != (e.ToolCallID == "tc_1") {
			t.Errorf("line %d is bound to %q by %q, want by %q", i, e.ToolCallID, e.BoundBy, want)
		}
	}
}

func TestEndedProcessesAreForgotten(t *testing.T) {
	var last schema.KernelEvent
	b := NewBuilder(Options{RunID: "r", Sink: func(e *schema.KernelEvent) error { last = *e; return nil }})
	for i := range uint64(100_000) {
		pid := uint32(i%30000) + 10
		f := forkEvent(i*10, 1, pid)
		f.Child.Start = i
		x := exitEvent(i*10+1, pid, 0)
		x.Task.Start = i
		push(t, b, f, x)
	}
	b.Close()
	if n := len(b.procs.byPID); n > keptExits+1 {
		t.Errorf("%d processes are remembered after 100,000 spawns", n)
	}
	if s := b.Stats(); s.Forks != 100_000 || s.Exits != 100_000 || s.MissedExits != 0 || s.Joins != 0 || s.Alive != 0 {
		t.Errorf("stats are %+v", s)
	}
	// Bytes of a connection whose process was forgotten still have a line.
	ev := event(9e9, 12, schema.KernelEvent{Kind: schema.KindFlow, BytesOut: 9})
	ev.Task.Start = 2
	ev.SetEnds(2, 6, netip.AddrPort{}, netip.MustParseAddrPort("1.2.3.4:5"))
	push(t, b, ev)
	b.Close()
	if last.ExecID != 0 || last.Kind != schema.KindFlow || last.BytesOut != 9 {
		t.Errorf("the flow's line is %+v", last)
	}
}

// Only a change that happened makes the record of changes doubtful.
func TestDoubtfulChanges(t *testing.T) {
	unlink := func(name string, change func(*kernel.Event)) kernel.Event {
		e := event(30, 10, schema.KernelEvent{Kind: schema.KindUnlink, Value: name, KernelCopy: true, HasResult: true})
		e.Syscall = "unlink"
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		change func(*kernel.Event)
		want   uint64
	}{
		"the kernel's copy":   {func(*kernel.Event) {}, 0},
		"the caller's memory": {func(e *kernel.Event) { e.UserMemory, e.KernelCopy = true, false }, 1},
		"claimed":             {func(e *kernel.Event) { e.Claimed = true }, 1},
		"claimed, and failed": {func(e *kernel.Event) { e.Claimed, e.Errno, e.Result = true, 2, -2 }, 0},
		"claimed, and an open for reading": {func(e *kernel.Event) {
			e.Claimed, e.Kind, e.Syscall = true, schema.KindOpen, "open"
		}, 0},
		"claimed, and an open for writing": {func(e *kernel.Event) { // what is written is told with the file
			e.Claimed, e.Kind, e.Syscall, e.Flags = true, schema.KindOpen, "open", 1
		}, 0},
		"claimed, and an open that empties": {func(e *kernel.Event) { // the kernel names the file that was opened
			e.Claimed, e.Kind, e.Syscall, e.Flags = true, schema.KindOpen, "open", 0o1001
		}, 0},
		"a name that was cut": {func(e *kernel.Event) { e.Truncated = schema.FieldValue }, 0},
		"a name in another mount namespace": {func(e *kernel.Event) {
			e.Marks = schema.MarkMountNamespace
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := collect(t, Options{})
			push(t, b, forkEvent(10, 5, 10), execEvent(20, 10, "/bin/rm", "rm"), unlink("/f", c.change))
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if got := b.Stats().DoubtfulChanges; got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
