package layer

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
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
	remote := event(6, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "mount"})
	remote.Syscall, remote.MountType = "mount", "nfs"
	tmpfs := event(7, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "mount"})
	tmpfs.Syscall, tmpfs.MountType = "mount", "tmpfs"
	packet := event(8, 10, schema.KernelEvent{Kind: schema.KindSocket, Call: "socket", Args: []uint64{17, 3, 0}})
	packet.Syscall = "socket"
	request := event(8, 10, schema.KernelEvent{Kind: schema.KindIOUringOp, Args: []uint64{46}})
	push(t, b, forkEvent(1, 0, 10), privileged(2, 10, "keyctl", 0), execEvent(3, 10, "/bin/sh", "sh"),
		privileged(4, 10, "acct", 0), repeat, remote, tmpfs, packet, request, privileged(9, 10, "swapon", 1),
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
	want := []open{{"acct", "", "/bin/sh", 5, 1},
		{"io_uring", "46 (uring_cmd)", "/bin/sh", 1, 4}, {"mount", "nfs", "/bin/sh", 1, 1},
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

// A file system that a server may keep opens the hosts, also where a server may have refused it, and new options of one
// that is mounted open the files.
func TestMountsThatOpen(t *testing.T) {
	mount := func(kind string, flags uint64, errno int32, claimed bool) kernel.Event {
		e := event(3, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "mount", Claimed: claimed})
		e.Syscall, e.MountType, e.Flags, e.Errno = "mount", kind, flags, errno
		return e
	}
	begun := event(3, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "fsopen", Target: "nfs4"})
	begun.Syscall = "fsopen"
	picked := event(3, 10, schema.KernelEvent{Kind: schema.KindMount, Call: "fspick", Value: "/m"})
	picked.Syscall = "fspick"
	hosts, files := []string{schema.SubjectHosts}, []string{schema.SubjectFiles}
	for name, c := range map[string]struct {
		event kernel.Event
		open  []string
	}{
		"a network file system":        {mount("nfs", 0, 0, false), hosts},
		"one by old flags":             {mount("cifs", 0xC0ED0000, 0, false), hosts},
		"one by its first bytes":       {mount("gfs2meta", 0, 0, false), hosts},
		"one that a server refused":    {mount("9p", 0, 13, false), hosts},
		"one that somebody refused":    {mount("nfs", 0, 1, false), hosts},
		"one that the kernel lacks":    {mount("nfs", 0, 19, false), nil},
		"one that a thread could name": {mount("tmpfs", 0, 0, true), schema.Subjects},
		"one that is begun":            {begun, hosts},
		"new options":                  {mount("", 0x20, 0, false), files},
		"new options by fspick":        {picked, files},
		"new flags of a bind mount":    {mount("", 0x1020, 0, false), nil},
		"a bind mount":                 {mount("nfs", 0x1000, 0, false), nil},
		"a local file system":          {mount("tmpfs", 0, 0, false), nil},
		"one with a long name":         {mount("security", 0, 0, false), nil},
		"one that a process serves":    {mount("fuse.ssh", 0, 0, false), nil},
	} {
		b, _ := collect(t, Options{})
		push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"), c.event)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		var open []string
		for _, o := range b.Stats().Open {
			open = append(open, o.Claims...)
		}
		if !slices.Equal(open, c.open) {
			t.Errorf("%s opens %q, want %q", name, open, c.open)
		}
	}
}

// A table that is full opens the claim that it serves.
func TestFullTablesOpenClaims(t *testing.T) {
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)
	}
	opened := func(events ...kernel.Event) (names []string) {
		b, _ := collect(t, Options{})
		push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"))
		push(t, b, events...)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for _, o := range b.Stats().Open {
			names = append(names, o.Call+" "+o.Operation)
		}
		return names
	}
	peer := func(kind schema.KernelKind, n int) (events []kernel.Event) {
		for i := range n {
			e := event(3+uint64(i), 10, schema.KernelEvent{Kind: kind, BytesOut: 1})
			e.Peer = at(i)
			events = append(events, e)
		}
		return events
	}
	fifos := func(n int) (events []kernel.Event) {
		const fifo = 0o010644
		for i := range n {
			e := event(3+uint64(i), 10, schema.KernelEvent{Kind: schema.KindMknod, Value: "/w/" + strconv.Itoa(i)})
			e.Mode = fifo
			events = append(events, e)
		}
		last := event(3+uint64(n), 10, schema.KernelEvent{Kind: schema.KindOpen, Value: "/w/" + strconv.Itoa(n-1),
			Flags: 1})
		last.FileMode = fifo
		return append(events, last)
	}
	for name, c := range map[string]struct {
		events []kernel.Event
		open   string
	}{
		"peers that fit": {peer(schema.KindConnect, keptPeers), ""},
		"one peer more":  {peer(schema.KindConnect, keptPeers+1), "flow further hosts"},
		"flows that fit": {append(peer(schema.KindConnect, keptFlows), peer(schema.KindFlow, keptFlows)...), ""},
		"one flow more": {append(peer(schema.KindConnect, keptFlows+1), peer(schema.KindFlow, keptFlows+1)...),
			"flow further hosts"},
		"FIFOs that fit": {fifos(keptFIFOs), ""},
		"one FIFO more":  {fifos(keptFIFOs + 1), "open /w/" + strconv.Itoa(keptFIFOs)},
	} {
		if got := strings.Join(opened(c.events...), ", "); got != c.open {
			t.Errorf("%s: %q is open, want %q", name, got, c.open)
		}
	}
}

// What honest programs are known to do is not unusual, and what else opens a claim is.
func TestUnusualCalls(t *testing.T) {
	b, _ := collect(t, Options{})
	push(t, b, forkEvent(1, 9, 10), execEvent(2, 10, "/bin/sh", "sh"), privileged(3, 10, "acct", 0),
		privileged(4, 10, "keyctl", 0))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range b.Stats().Open {
		if o.Unusual != (o.Call == "acct") {
			t.Errorf("%s is unusual: %v", o.Call, o.Unusual)
		}
	}
}
