package layer

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

const start = 1_000_000_000

// collect returns a builder and the lines it hands out, as decoded from their
// JSON: nothing is compared that isn't written.
func collect(t testing.TB, o Options) (*Builder, *[]schema.KernelEvent) {
	t.Helper()
	var lines []schema.KernelEvent
	o.RunID, o.Start = "run_1", start
	o.Sink = func(e *schema.KernelEvent) error {
		e.Seq = uint64(len(lines))
		var got schema.KernelEvent
		if err := schema.DecodeKernelEvent(schema.AppendJSON(nil, e), &got); err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		lines = append(lines, got)
		return nil
	}
	return NewBuilder(o), &lines
}

func push(t testing.TB, b *Builder, evs ...kernel.Event) {
	t.Helper()
	for i := range evs {
		ev := evs[i]
		if ev.Count == 0 {
			ev.Count = 1
		}
		if err := b.Push(&ev); err != nil {
			t.Fatal(err)
		}
	}
}

func at(t uint64) uint64 { return start + t }

// event is one of a process whose leader started at its own number.
func event(t uint64, pid uint32, line schema.KernelEvent) kernel.Event {
	line.PID, line.TID = pid, pid
	return kernel.Event{KernelEvent: line, Time: at(t), Task: kernel.Task{PID: pid, TID: pid, Start: uint64(pid)}}
}

func forkEvent(t uint64, parent, child uint32) kernel.Event {
	ev := event(t, parent, schema.KernelEvent{Kind: schema.KindFork, PPID: parent, CgroupID: 7})
	ev.PID, ev.TID = child, child
	ev.Child = kernel.Task{PID: child, TID: child, PPID: parent, Start: uint64(child), CgroupID: 7}
	return ev
}

func execEvent(t uint64, pid uint32, exe string, argv ...string) kernel.Event {
	ev := event(t, pid, schema.KernelEvent{Kind: schema.KindExec, PPID: 1, CgroupID: 7, Value: exe, Cwd: "/srv",
		Argv: argv, EnvKeys: []string{}})
	if argv == nil {
		ev.Argv = []string{}
	}
	ev.Task.PPID, ev.Task.CgroupID = 1, 7
	return ev
}

func exitEvent(t uint64, pid uint32, code int) kernel.Event {
	return event(t, pid, schema.KernelEvent{Kind: schema.KindExit, WaitStatus: uint32(code) << 8})
}

func openEvent(t uint64, pid uint32, path string, flags uint64, errno int32) kernel.Event {
	ev := event(t, pid, schema.KernelEvent{Kind: schema.KindOpen, Value: path, Flags: flags, HasResult: true,
		Result: 3})
	ev.Syscall, ev.ID = "openat", t+1
	if errno != 0 {
		ev.Result, ev.Errno, ev.UserMemory = -int64(errno), errno, true
	}
	return ev
}

const cloexec = 0o2000000

func shimEvent(at uint64) kernel.Event {
	ev := execEvent(at, 10, "/bin/assay-run", "assay-run", "join")
	ev.Target = "/proc/self/exe"
	return ev
}
