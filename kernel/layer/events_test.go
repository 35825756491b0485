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

func forkEvent(t uint64, parent, child uint32) kernel.Event {
	return kernel.Event{Kind: schema.KindFork, Time: at(t), PID: parent, TID: parent, Start: uint64(parent),
		ChildPID: child, ChildTID: child, ChildStart: uint64(child), ChildCgroupID: 7}
}

func execEvent(t uint64, pid uint32, exe string, argv ...string) kernel.Event {
	ev := kernel.Event{Kind: schema.KindExec, Time: at(t), PID: pid, TID: pid, PPID: 1, Start: uint64(pid), CgroupID: 7,
		Exe: []byte(exe), Filename: []byte(exe), Cwd: []byte("/srv")}
	for _, a := range argv {
		ev.Argv = append(ev.Argv, []byte(a))
	}
	return ev
}

func exitEvent(t uint64, pid uint32, code int) kernel.Event {
	return kernel.Event{Kind: schema.KindExit, Time: at(t), PID: pid, TID: pid, Start: uint64(pid), ExitCode: code}
}

func openEvent(t uint64, pid uint32, path string, flags uint64, errno int32) kernel.Event {
	ev := kernel.Event{Kind: schema.KindOpen, Syscall: "openat", Time: at(t), PID: pid, TID: pid, Start: uint64(pid),
		Path: []byte(path), Flags: flags, PathSource: kernel.PathKernelObject, Ret: 3, ID: t + 1}
	if errno != 0 {
		ev.Ret, ev.Errno, ev.PathSource = -errno, errno, kernel.PathUserMemory
	}
	return ev
}

const cloexec = 0o2000000

func shimEvent(at uint64) kernel.Event {
	ev := execEvent(at, 10, "/bin/assay-run", "assay-run", "join")
	ev.Filename = []byte("/proc/self/exe")
	return ev
}
