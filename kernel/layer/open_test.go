package layer

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// privileged is a call that has a line of its own.
func privileged(t uint64, pid uint32, call string, errno int32) kernel.Event {
	e := event(t, pid, schema.KernelEvent{Kind: schema.KindPrivileged, Call: call})
	e.Syscall, e.Errno = call, errno
	return e
}

// The health names each call that opens a claim once, with the first program and how often, and leaves out what failed
// and what assay-run itself did before the command.
func TestOpenCalls(t *testing.T) {
	b, _ := collect(t, Options{})
	repeat := privileged(5, 10, "acct", 0)
	repeat.Repeat, repeat.Count = true, 4
	cgroups := event(6, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "mount"})
	cgroups.Syscall, cgroups.MountType = "mount", "cgroup"
	tmpfs := event(7, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "mount"})
	tmpfs.Syscall, tmpfs.MountType = "mount", "tmpfs"
	packet := event(8, 10, schema.KernelEvent{Kind: schema.KindSocket, Call: "socket", Args: []uint64{17, 3, 0}})
	packet.Syscall = "socket"
	push(t, b, forkEvent(1, 0, 10), privileged(2, 10, "keyctl", 0), execEvent(3, 10, "/bin/sh", "sh"),
		privileged(4, 10, "acct", 0), repeat, cgroups, tmpfs, packet, privileged(9, 10, "swapon", 1),
		privileged(10, 10, "sethostname", 0))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	a := earned()
	a.Stats.Open = b.Stats().Open
	h := judge(a)
	type open struct {
		call, operation, program string
		count                    uint64
		claims                   int
	}
	var got []open
	for _, o := range h.Open {
		if o.Why == "" {
			t.Errorf("%s has no reason", o.Call)
		}
		got = append(got, open{o.Call, o.Operation, o.Program, o.Count, len(o.Claims)})
	}
	want := []open{{"acct", "", "/bin/sh", 5, 1}, {"mount", "cgroup", "/bin/sh", 1, 4},
		{"socket", "family 17, protocol 0", "/bin/sh", 1, 1}}
	if !reflect.DeepEqual(got, want) || h.Model != kernel.ModelDigest() {
		t.Errorf("open: %+v, not %+v; model %q", got, want, h.Model)
	}
}

// A FIFO is the run's own by the name under which the run made it, until something else can have that name.
func TestAFIFOMayLoseItsName(t *testing.T) {
	const fifo = 0o010644
	for what, c := range map[string]struct {
		then schema.KernelEvent
		open int
	}{
		"another file is removed":  {schema.KernelEvent{Kind: schema.KindUnlink, Value: "/w/d/other"}, 0},
		"another is renamed to it": {schema.KernelEvent{Kind: schema.KindRename, Value: "/x", Target: "/w/d/f"}, 1},
		"its directory is another": {schema.KernelEvent{Kind: schema.KindRename, Value: "/x", Target: "/w/d"}, 1},
		"it is removed":            {schema.KernelEvent{Kind: schema.KindUnlink, Value: "/w/d/f"}, 1},
		"another is linked there":  {schema.KernelEvent{Kind: schema.KindLink, Value: "/x", Target: "/w/d/f"}, 1},
		"something is mounted":     {schema.KernelEvent{Kind: schema.KindMount, Call: "mount", Value: "/w"}, 1},
	} {
		b, _ := collect(t, Options{})
		made := event(4, 10, schema.KernelEvent{Kind: schema.KindMknod, Value: "/w/d/f"})
		made.Mode = fifo
		opened := event(6, 10, schema.KernelEvent{Kind: schema.KindOpen, Value: "/w/d/f", Flags: 1})
		opened.FileMode = fifo
		push(t, b, forkEvent(1, 0, 10), execEvent(3, 10, "/bin/sh", "sh"), made, event(5, 10, c.then), opened)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, o := range b.Stats().Open {
			if o.Call == "open" {
				n++
			}
		}
		if n != c.open {
			t.Errorf("%s: %d open calls, not %d: %+v", what, n, c.open, b.Stats().Open)
		}
	}
}

// However many different calls a run makes, the list stays short, and what it leaves out opens every claim.
func TestOpenCallsAreBounded(t *testing.T) {
	b, _ := collect(t, Options{})
	push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"))
	for i := range uint64(keptOpen + 10) {
		e := event(3+i, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "fsopen",
			Target: "fs" + strconv.Itoa(int(i))})
		e.Syscall = "fsopen"
		push(t, b, e)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	list := b.Stats().Open
	if len(list) != keptOpen+1 {
		t.Fatalf("%d calls, not %d", len(list), keptOpen+1)
	}
	for _, o := range list {
		if o.Call == restOpen && (o.Count != 10 || len(o.Claims) != 4) {
			t.Errorf("the rest: %+v", o)
		}
	}
}
