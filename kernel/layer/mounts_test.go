package layer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Paths are marked of processes in another mount namespace than the recorder's and the
// one that the runner made for the command.
func TestPathsOfOtherMountsAreMarked(t *testing.T) {
	const host, own, other = 1, 2, 3
	fork := func(t uint64, parent, child, ns uint32) kernel.Event {
		ev := forkEvent(t, parent, child)
		ev.MountNS = ns
		return ev
	}
	enters := func(t uint64, pid, ns uint32) kernel.Event {
		ev := event(t, pid, schema.KernelEvent{Kind: schema.KindNamespace, HasResult: true})
		ev.Syscall, ev.MountNS = "unshare", ns
		return ev
	}
	open := func(t uint64, pid uint32, path string) kernel.Event { return openEvent(t, pid, path, cloexec, 0) }
	again := open(15, 12, "/repeated")
	again.Slot = 4
	repeat := again
	repeat.Time, repeat.Repeat, repeat.Count, repeat.First, repeat.Last = at(32), true, 2, at(15), at(15)
	joined := event(40, 20, schema.KernelEvent{Kind: schema.KindJoin, Value: "/a/group"})
	joined.MountNS = other
	runners := forkEvent(1, 0, 10)
	runners.MountNS, runners.Task.Start = host, 0
	events := []kernel.Event{
		runners, open(2, 10, "/starting"), enters(3, 10, own), execEvent(4, 10, "/bin/sh", "sh"), open(5, 10, "/own"),
		fork(10, 10, 12, other), open(11, 12, "/cloned"), again,
		fork(16, 12, 13, other), open(17, 13, "/inherited"),
		fork(20, 10, 14, own), open(21, 14, "/not-yet"), enters(22, 14, other), open(23, 14, "/unshared"),
		enters(24, 14, own), open(25, 14, "/back"),
		enters(30, 12, own), open(31, 12, "/came-back"), repeat,
		joined, open(41, 20, "/container"), openEvent(42, 20, "/missing", cloexec, 2),
	}
	cloner, innermost := forkEvent(1, 0, 10), fork(2, 10, 11, own)
	cloner.MountNS, cloner.Task.Start = host, 0
	clones := enters(3, 10, host) // it stays where it was
	clones.Syscall = "clone"
	for name, c := range map[string]struct {
		ns     uint32
		events []kernel.Event
		want   string
	}{
		"told":    {host, events, "/cloned /repeated /inherited /unshared /repeated /container /missing"},
		"unknown": {0, events, ""},
		"the runner's child clones the command": {host, []kernel.Event{
			cloner, innermost, clones, open(4, 11, "/starting"), execEvent(5, 11, "/bin/sh", "sh"), open(6, 11, "/own"),
		}, ""},
	} {
		b, lines := collect(t, Options{MountNS: c.ns})
		push(t, b, c.events...)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range *lines {
			if e.Marks&schema.MarkMountNamespace != 0 {
				got = append(got, e.Value)
			}
		}
		if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// In a mount namespace of its own, a process can mount anything over a library or the
// loader's cache: only what was not found is noise there.
func TestFilesOfOtherMountsAreNeverNoise(t *testing.T) {
	const host, other = 1, 2
	python := "/usr/bin/python3.13"
	paths := []string{
		"/etc/ld.so.cache", "/usr/lib/libc.so.6", "/usr/share/zoneinfo/UTC", "/usr/lib/python3.13/os.py",
		"/proc/self/maps", "/dev/urandom",
		"/opt/go/lib/python3.13/site-packages/x.pth",
	}
	for _, c := range []struct {
		name  string
		ns    uint32
		errno int32
		tried bool
		noise bool
	}{
		{"in the run's namespace", host, 0, false, true},
		{"in another", other, 0, false, false},
		{"in another, where nothing was found", other, 2, false, true},
		{"in another, whose result nobody saw", other, 0, true, false},
	} {
		b, lines := collect(t, Options{MountNS: host})
		start := forkEvent(0, 1, 10)
		start.MountNS = c.ns
		push(t, b, start, execEvent(1, 10, python))
		for i, path := range paths {
			ev := openEvent(uint64(2+i), 10, path, cloexec, 0)
			ev.Errno, ev.HasResult = c.errno, !c.tried
			if c.errno != 0 {
				ev.Result = -int64(c.errno)
			}
			ev.Attempted = c.tried
			push(t, b, ev)
		}
		b.Close()
		for _, e := range (*lines)[2:] {
			if (e.Class != schema.ClassAgent) != c.noise {
				t.Errorf("%s: %s is of class %v", c.name, e.Value, e.Class)
			}
		}
	}
}

// In the mount namespace in which a container's first program began, names are those below the container's root. In
// another one, which a process of the container made, they need not be.
func TestPathsBelowTheRootOfAContainerAreMarked(t *testing.T) {
	const host, inside, other = 1, 2, 3
	enters := func(t uint64, pid, ns uint32) kernel.Event {
		ev := event(t, pid, schema.KernelEvent{Kind: schema.KindNamespace, HasResult: true})
		ev.Syscall, ev.MountNS = "setns", ns
		return ev
	}
	joined := event(1, 20, schema.KernelEvent{Kind: schema.KindJoin, Value: "/a/group"})
	joined.MountNS = host
	b, lines := collect(t, Options{MountNS: host, Foreign: true, Container: strings.Repeat("c", 64)})
	push(t, b, joined, openEvent(2, 20, "/runtime", cloexec, 0), enters(3, 20, inside),
		openEvent(4, 20, "/setup", cloexec, 0),
		execEvent(5, 20, "/bin/sh", "sh"), openEvent(6, 20, "/below", cloexec, 0), forkEvent(7, 20, 21),
		enters(8, 21, other), openEvent(9, 21, "/unshared", cloexec, 0), enters(10, 21, inside),
		openEvent(11, 21, "/back", cloexec, 0))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range *lines {
		if e.Kind == schema.KindOpen || e.Kind == schema.KindExec {
			got = append(got, e.Value+" "+e.Marks.String())
		}
	}
	want := []string{"/runtime ", "/setup mount_namespace", "/bin/sh mount_namespace,container",
		"/below mount_namespace,container", "/unshared mount_namespace", "/back mount_namespace,container"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
