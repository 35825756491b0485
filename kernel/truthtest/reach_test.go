//go:build linux && amd64

package truthtest

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// reach runs a case of testdata/reach.py, which gets the pid of a process outside, and
// stdin, if there is one.
func reach(t *testing.T, name string, stdin ...*os.File) recording {
	t.Helper()
	need(t, "python3", "sleep")
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	dir := t.TempDir()
	run, bundle := prepare(t, dir, nil, "/usr/bin/python3", "-S", source(t)+"/testdata/reach.py", name,
		strconv.Itoa(c.Process.Pid))
	// a reason is no failure here
	run.Args = slices.DeleteFunc(run.Args, func(a string) bool { return a == "--kernel" || a == "require" })
	for _, f := range stdin {
		run.Stdin = f
		run.Args = slices.Insert(run.Args, 1, "--no-capture") // or stdin is a copy
	}
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.out = string(out)
	return r
}

// What reaches into a process outside of the run, or has the kernel start one, is a
// reason against the layer; what a run does to its own processes is none.
func TestReachingBeyondTheRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		reasons []string
		line    string // in the story, W for nothing
	}{
		{"helper", []string{"kernel_helper_changed"}, "privileged /proc/sys/kernel/core_pattern"},
		{"memory", []string{"outside_process_traced"}, ""},
		{"memory_read", []string{"outside_process_traced"}, ""},
		{"second_proc", []string{"kernel_helper_changed", "outside_process_traced"},
			"privileged /proc/sys/kernel/core_pattern"},
		{"bound_helper", []string{"kernel_helper_changed"}, "privileged /proc/sys/kernel/core_pattern"},
		{"other_root", []string{"kernel_helper_changed"}, "privileged /proc/sys/kernel/core_pattern"},
		{"other_binfmt", []string{"kernel_helper_changed"}, "privileged /proc/sys/fs/binfmt_misc/register"},
		{"moved_in", []string{"process_moved_in"}, "join "},
		{"bpf_tracing", []string{"kernel_changed"}, "bpf"},
		{"bpf_filter", nil, "bpf"},
		{"namesake", nil, ""},
		{"ptrace", []string{"outside_process_traced"}, "ptrace "},
		{"own_memory", nil, "ptrace "},
		{"own_thread", nil, "ptrace "},
		{"stop", nil, "signal SIGCONT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reach(t, c.name)
			r.claims(t, c.reasons...)
			if got := r.story("/nowhere", dull...); c.line != "" && !slices.ContainsFunc(got, func(l string) bool {
				return strings.HasPrefix(l, c.line)
			}) {
				t.Errorf("no line %q in %q", c.line, got)
			}
		})
	}
}

// A name is taken for a descriptor's only if it begins in a procfs, and not by its text.
func TestFalseProc(t *testing.T) {
	r := reach(t, "false_proc")
	r.claims(t)
	var got []string
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindChmod {
			_, below, _ := strings.Cut(strings.TrimPrefix(e.Value, os.TempDir()+"/"), "/")
			got = append(got, below[strings.IndexByte(below, '/')+1:]+" "+e.Errno())
		}
	}
	if d := cmp.Diff([]string{"held ", "root/changed "}, got); d != "" {
		t.Errorf("changed (-want +got):\n%s", d)
	}
}

// The set of peers is claimed only where nothing carried data past the hooks.
func TestPeerSetNeedsEveryWayOut(t *testing.T) {
	for _, c := range []struct {
		name, scope string
		endpoints   []string
		reasons     []string
	}{
		{"packet", schema.DiagnosticOnly, nil, []string{schema.CodeBlindSpot}},
		{"other_packet", schema.DiagnosticOnly, nil, []string{schema.CodeBlindSpot}},
		{"bpf_packets", schema.DiagnosticOnly, nil, []string{schema.CodeBlindSpot}},
		{"bpf_filter", schema.DiagnosticOnly, nil, nil},
		{"vsock", schema.DiagnosticOnly, []string{"vsock:2:1024"}, []string{schema.CodeBlindSpot}},
		{"other_tun", schema.DiagnosticOnly, nil, []string{schema.CodeBlindSpot}},
		{"unknown_file_system", schema.DiagnosticOnly, nil, nil},
		{"local_file_system", schema.PeerSet, nil, nil},
		{"unspec", schema.PeerSet, []string{"127.0.0.1:9"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reach(t, c.name)
			r.claims(t, c.reasons...)
			if got := r.health.NetworkEndpointClaimScope; got != c.scope {
				t.Errorf("the scope is %s, want %s", got, c.scope)
			}
			if d := cmp.Diff(c.endpoints, slices.DeleteFunc(r.surface.NetworkEndpoints, func(s string) bool {
				return strings.HasPrefix(s, "unix:")
			})); len(c.endpoints)+len(r.surface.NetworkEndpoints) > 0 && d != "" {
				t.Errorf("endpoints (-want +got):\n%s", d)
			}
		})
	}
}

// netlinkScript begins a program that has a message which adds a permanent neighbour, and a socket for it.
const netlinkScript = `python3 -c '
import ctypes, os, socket, struct, threading
neighbour = struct.pack("=IHHII BBHiHBB HH4s HH6s2x", 48, 28, 0x405, 1, 0, 2, 0, 0, 1, 0x80, 0, 0,
    8, 1, bytes([127, 9, 9, 9]), 10, 2, bytes(6))
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)`

// Who changes interfaces and routes can make what is sent to a recorded address go to another host. Questions change
// nothing, whoever changes something meanwhile.
func TestNetworksThatWereChanged(t *testing.T) {
	need(t, "unshare", "ip", "setpriv", "python3")
	for _, c := range []struct {
		name, script string
		open         string
	}{
		{"a tunnel", "ip link add v0 type vxlan id 1 remote 192.0.2.1 dstport 4789", "RTM_NEWLINK"},
		{"a route", "ip link set lo up; ip route add 192.0.2.0/24 dev lo", "RTM_NEWROUTE"},
		{"a rule", "ip rule add from 192.0.2.1 table 7", "RTM_NEWRULE"},
		{"an address by ioctl", `python3 -c '
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8916, struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes([192, 0, 2, 1])))  # SIOCSIFADDR
'`, "SIOCSIFADDR"},
		{"a neighbour by io_submit", netlinkScript + `
libc = ctypes.CDLL(None)
data, context = ctypes.create_string_buffer(neighbour, len(neighbour)), ctypes.c_ulong()
libc.syscall(206, 1, ctypes.byref(context))
cb = (ctypes.c_uint64 * 8)(0, 0, 1 | s.fileno() << 32, ctypes.addressof(data), len(neighbour))
assert libc.syscall(209, context, 1, ctypes.byref(ctypes.pointer(cb))) == 1
assert s.recv(4096)[16:20] == bytes(4)
'`, "RTM_NEWNEIGH"},
		{"a neighbour by write", netlinkScript + `
os.write(s.fileno(), neighbour)
assert s.recv(4096)[16:20] == bytes(4)'`, "RTM_NEWNEIGH"},
		{"a neighbour by sendfile", netlinkScript + `
f = os.memfd_create("m")
os.write(f, neighbour)
os.sendfile(s.fileno(), f, 0, len(neighbour))'`, "was not seen to read"},
		{"a neighbour before a dump that nobody reads", netlinkScript + `
dump = struct.pack("=IHHII BBHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0, 0)  # RTM_GETLINK
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
s.send(neighbour + dump)'`, "RTM_NEWNEIGH"},
		{"a neighbour before a dump, after one that splice read", netlinkScript + `
dump = struct.pack("=IHHII BBHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0, 0)  # RTM_GETLINK
link = struct.pack("=IHHII BBHiII", 32, 18, 5, 1, 0, 0, 0, 0, 1, 0, 0)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
s.setblocking(False)
s.send(link + dump)
r, w = os.pipe()
for i in range(9):
    try:
        os.read(r, os.splice(s.fileno(), w, 65536))
    except OSError:  # ENOBUFS, and EAGAIN at the end
        pass
s.send(neighbour + dump)'`, "RTM_NEWNEIGH"},
		{"a neighbour that a thread hides", netlinkScript + `
question = struct.pack("=IHHII BBHiII", 32, 18, 1, 1, 0, 0, 0, 0, 1, 0, 0).ljust(len(neighbour), b"\0")
data, done = ctypes.create_string_buffer(neighbour, len(neighbour)), False
def race():
    while not done:
        ctypes.memmove(data, question, len(question))
        ctypes.memmove(data, neighbour, len(neighbour))
t = threading.Thread(target=race)
t.start()
for i in range(2000):
    s.send(data)
done = True
t.join()'`, "RTM_NEWNEIGH"},
		{"questions alone", "ip link; ip addr; ip route; ss -tn || true", ""},
		{"questions of a thread", `python3 -c '
import socket, threading
t = threading.Thread(target=lambda: print(socket.getaddrinfo("localhost", 80), socket.if_nameindex()))
t.start()
t.join()'`, ""},
		{"a network of its own", "unshare -n ip link set lo up", ""},
		{"a network of others", "nsenter -n -t $$ ip link", ""},
		{"a change by somebody who may not",
			"setpriv --bounding-set=-net_admin --inh-caps=-net_admin ip link add v0 type veth", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, bundle := prepare(t, t.TempDir(), nil, "sh", "-c", c.script+"; true")
			run.Path = must(exec.LookPath("unshare"))
			run.Args = slices.Concat([]string{"unshare", "-n", program}, run.Args[1:])
			out, err := run.CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("Traceback")) {
				t.Fatalf("%v\n%s", err, out)
			}
			r := readBundle(t, bundle)
			r.claims(t)
			scope := schema.PeerSet
			if c.open != "" {
				scope = schema.DiagnosticOnly
			}
			if got := r.health.NetworkEndpointClaimScope; got != scope {
				t.Errorf("the scope is %s, want %s", got, scope)
			}
			var open string
			for _, g := range view.Claim(&archive.Documents{Health: r.health}, view.Hosts) {
				open += g.Text
			}
			if c.open == "" && open != "" || !strings.Contains(open, c.open) {
				t.Errorf("hosts: %q, want %q", open, c.open)
			}
		})
	}
}

// Signals have places of their own where repeats are counted. None is lost when these are too few.
func TestSignalsAreCounted(t *testing.T) {
	r := reach(t, "signals")
	r.claims(t)
	senders, n := map[uint64]bool{}, uint64(0)
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindSignal {
			senders[uint64(e.PID)] = true
			n += e.Times()
		}
	}
	if len(senders) != 100 || n != 600 {
		t.Errorf("%d signals from %d processes, want 600 from 100", n, len(senders))
	}
}

// The kernel connects to an address that an MPTCP server announces, without any call. That peer is one of the run's.
func TestAddressesThatServersAnnounce(t *testing.T) {
	need(t, "python3", "unshare", "ip")
	if on, _ := os.ReadFile("/proc/sys/net/mptcp/enabled"); strings.TrimSpace(string(on)) != "1" {
		t.Skip("the kernel has no MPTCP")
	}
	script := source(t) + "/testdata/reach.py"
	run, bundle := prepare(t, t.TempDir(), nil, "/usr/bin/python3", "-S", script, "announced")
	run.Path = must(exec.LookPath("unshare"))
	run.Args = slices.Concat([]string{"unshare", "-n", "sh", "-ec", `
		ip link set lo up
		ip addr add 192.0.2.1/32 dev lo
		ip mptcp limits set subflow 2 add_addr_accepted 2
		ip mptcp endpoint add 192.0.2.1 dev lo signal
		/usr/bin/python3 -S "$0" announcing_server >/dev/null 2>&1 &
		exec "$@"`, script, program}, run.Args[1:])
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.claims(t)
	if got := r.health.NetworkEndpointClaimScope; got != schema.PeerSet {
		t.Errorf("the scope is %s", got)
	}
	if d := cmp.Diff([]string{"127.0.0.1:7000", "192.0.2.1:7000"}, tcp(r.surface.NetworkEndpoints)); d != "" {
		t.Errorf("endpoints (-want +got):\n%s", d)
	}
}

func TestPrivilegedCallsAreRecorded(t *testing.T) {
	r := reach(t, "privileged")
	r.claims(t)
	var got []string
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindPrivileged && e.Class == schema.ClassAgent {
			line := e.Call
			if e.Call == "prctl" {
				line += " " + strconv.FormatUint(e.Args[0], 10)
			} else if e.Call == "ioctl" {
				line += " " + strconv.FormatUint(e.Args[1], 10)
			}
			if !slices.Contains(got, line) {
				got = append(got, line)
			}
		}
	}
	want := []string{"sethostname", "prctl 4", "prctl 38", "perf_event_open", "keyctl", "seccomp", "acct", "swapoff",
		"swapon",
		"setdomainname", "quotactl", "add_key", "request_key", "inotify_add_watch", "vhangup",
		"ioctl 21522", "ioctl 21532"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

const claimedSpot = "a name or address that another thread, process or mapping can change may have changed while " +
	"the kernel used it; such events say arguments=claimed"

// A name in memory that another thread shares is the kernel's copy all the same.
func TestNamesInSharedMemory(t *testing.T) {
	r := reach(t, "claimed")
	r.claims(t)
	found := map[string]bool{}
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindUnlink {
			found[e.Value[strings.LastIndexByte(e.Value, '/')+1:]] = true
			if e.Claimed || !e.KernelCopy {
				t.Errorf("unlink of %s: claimed is %v, the kernel's copy %v", e.Value, e.Claimed, e.KernelCopy)
			}
		}
	}
	if !found["single"] || !found["after-vfork"] || !found["shared"] {
		t.Errorf("unlinks of %v", found)
	}
	if blindSpot(t, r, claimedSpot) {
		t.Error("the blind spot is marked as exercised")
	}
}
