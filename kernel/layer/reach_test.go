package layer

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Not every kernel has each of these files, so that an attack by all of them cannot be
// made on one.
func TestEveryHelperOfTheKernelIsKnown(t *testing.T) {
	for name, helper := range map[string]bool{
		"/proc/sys/kernel/core_pattern": true, "/proc/sys/kernel/modprobe": true, "/proc/sys/kernel/hotplug": true,
		"/proc/sys/kernel/poweroff_cmd": true, "/sys/kernel/uevent_helper": true,
		"/proc/sys/kernel/usermodehelper/bset": true,
		"/proc/sys/fs/binfmt_misc/register":    true, "/sys/fs/cgroup/pids/release_agent": true,
		"/proc/sys/kernel/modprobe.d": false, "/etc/modprobe.d/a.conf": false, "/srv/uevent_helper": false,
	} {
		const readOnly, writeOnly = 0, 1
		for _, flags := range []uint64{readOnly, writeOnly} {
			b, lines := collect(t, Options{})
			open := openEvent(3, 10, "/mounted/elsewhere", flags, 0)
			open.Place = name
			push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"), open,
				event(4, 50, schema.KernelEvent{Kind: kernel.KindKernelExec, Value: "/tmp/handler"}))
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			var changed, started bool
			for _, l := range *lines {
				changed = changed || l.Kind == schema.KindPrivileged && l.Call == "kernel_helper" && l.Value == name
				started = started || l.Call == "kernel_helper_started" && l.Value == "/tmp/handler"
			}
			want := helper && flags == writeOnly
			if r := b.Stats().Reach; changed != want || started != want || (r.Helper == name) != want ||
				(r.StartedTimes == 1) != want {
				t.Errorf("%s, flags %d: a line %v, of what was started %v, %+v; want %v", name, flags, changed, started,
					r, want)
			}
		}
	}
}

// What the kernel starts is told where it is for the run, or may be, and is then a reason
// against the layer.
func TestProgramsThatTheKernelStartsForTheRun(t *testing.T) {
	for asked, want := range map[uint64]bool{kernel.AskedNot: false, kernel.Asked: true, kernel.AskedMaybe: true} {
		b, lines := collect(t, Options{})
		started := event(3, 10, schema.KernelEvent{
			Kind: kernel.KindKernelExec, Value: "/sbin/modprobe", Args: []uint64{asked},
		})
		push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"), started)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		last := (*lines)[len(*lines)-1]
		if told := last.Call == "kernel_helper_started" && last.Value == "/sbin/modprobe"; told != want {
			t.Errorf("asked %d: the last line is %s %s %s", asked, last.Kind, last.Call, last.Value)
		}
		if by := last.ExecID != 0; want && by != (asked == kernel.Asked) {
			t.Errorf("asked %d: it has a program that asked: %v", asked, by)
		}
		if r := b.Stats().Reach; (r.StartedTimes == 1) != want {
			t.Errorf("asked %d: %+v", asked, r)
		}
	}
}

// What changes the kernel itself, or carries data where no hook sees it, cannot be done on every host.
func TestPowersBeyondTheHooks(t *testing.T) {
	act := func(kind schema.KernelKind, call string, args ...uint64) kernel.Event {
		e := event(3, 10, schema.KernelEvent{Kind: kind, Args: args})
		e.Syscall = call
		return e
	}
	loaded := func(program uint8) kernel.Event {
		e := act(schema.KindBPF, "bpf", 5)
		e.BPF = kernel.BPFObject{Type: kernel.BPFProg, ID: 1, Program: program}
		return e
	}
	failed := act(schema.KindModule, "init_module")
	failed.Errno = 1
	opened := openEvent(3, 10, "/anywhere", 1, 0)
	opened.Place = kernel.PlaceMemory
	claimed := act(schema.KindConnect, "connect")
	claimed.Protocol, claimed.Claimed = "vsock", true
	handed := act(schema.KindForeignSocket, "sendto")
	handed.Peer = netip.MustParseAddrPort("192.0.2.1:53")
	others := []string{"other_sockets"}
	const socketFilter, classifier, kprobe = 1, 3, 2
	for name, c := range map[string]struct {
		event            kernel.Event
		changes, carries uint64
		blind            []string // that the run used; "?" behind one of which that is not known
	}{
		"a module":                         {act(schema.KindModule, "finit_module"), 1, 0, nil},
		"a module that is refused":         {failed, 0, 0, nil},
		"another kernel":                   {act(schema.KindPrivileged, "kexec_file_load"), 1, 0, nil},
		"ports":                            {act(schema.KindPrivileged, "iopl", 3), 1, 0, nil},
		"no ports":                         {act(schema.KindPrivileged, "iopl", 0), 0, 0, nil},
		"the machine's memory":             {opened, 1, 0, nil},
		"a program in the kernel":          {loaded(kprobe), 1, 0, nil},
		"a program for packets":            {loaded(classifier), 0, 1, others},
		"a filter of its own socket":       {loaded(socketFilter), 0, 0, nil},
		"a peer that another could change": {claimed, 0, 0, []string{"other_sockets?"}},
		"another's socket to a server":     {handed, 0, 0, []string{"handed_names"}},
		"a socket for routes":              {act(schema.KindSocket, "socket", 16, 3), 0, 0, nil},
		"a socket for IPsec":               {act(schema.KindSocket, "socket", 16, 3, 6), 0, 1, others},
		"the older one":                    {act(schema.KindSocket, "socket", 15, 3, 2), 0, 1, others},
	} {
		b, _ := collect(t, Options{})
		push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"), c.event)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if r := b.Stats().Reach; r.KernelChanges != c.changes || r.Carriers != c.carries {
			t.Errorf("%s: %d changes of the kernel, %d ways past the hooks, want %d and %d", name, r.KernelChanges,
				r.Carriers, c.changes, c.carries)
		}
		a := earned()
		a.Stats.Reach = b.Stats().Reach
		var blind []string
		for _, d := range judge(a).Coverage {
			for _, s := range d.KnownBlindSpots {
				switch doubt := s.ID == "other_sockets" || s.ID == "handed_names"; {
				case doubt && s.Exercised == nil:
					blind = append(blind, s.ID+"?")
				case doubt && *s.Exercised:
					blind = append(blind, s.ID)
				}
			}
		}
		if !slices.Equal(blind, c.blind) {
			t.Errorf("%s: used %q, want %q", name, blind, c.blind)
		}
		if h := judge(a); len(blind) > 0 && h.NetworkEndpointClaimScope != schema.DiagnosticOnly {
			t.Errorf("%s: the scope is %s", name, h.NetworkEndpointClaimScope)
		}
	}
}
