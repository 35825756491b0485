//go:build linux && amd64

package truthtest

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		{"bpf_filter", schema.PeerSet, nil, nil},
		{"vsock", schema.DiagnosticOnly, []string{"vsock:2:1024"}, []string{schema.CodeBlindSpot}},
		{"other_tun", schema.DiagnosticOnly, nil, []string{schema.CodeBlindSpot}},
		{"unknown_file_system", schema.DiagnosticOnly, nil, []string{schema.CodeBlindSpot}},
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

// Who may change interfaces and routes can make what is sent to a recorded address go to another host. The recorder
// knows that they were changed, but not by whom.
func TestNetworksThatWereChanged(t *testing.T) {
	need(t, "unshare", "ip", "setpriv", "python3")
	for _, c := range []struct {
		name, script string
		doubt        bool
	}{
		{"a tunnel", "ip link add v0 type vxlan id 1 remote 192.0.2.1 dstport 4789", true},
		{"a route", "ip link set lo up; ip route add 192.0.2.0/24 dev lo", true},
		{"a rule", "ip rule add from 192.0.2.1 table 7", true},
		{"an address by ioctl", `python3 -c '
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8916, struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes([192, 0, 2, 1])))  # SIOCSIFADDR
fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS: IFF_UP
'`, true},
		{"an interface by io_submit", `python3 -c '
import ctypes, socket, struct
libc = ctypes.CDLL(None)
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
m = struct.pack("=IHHII BBHiII", 32, 16, 5, 1, 0, 0, 0, 0, 1, 1, 1)  # RTM_NEWLINK: lo, IFF_UP
data, context = ctypes.create_string_buffer(m, 32), ctypes.c_ulong()
libc.syscall(206, 1, ctypes.byref(context))
cb = (ctypes.c_uint64 * 8)(0, 0, 1 | s.fileno() << 32, ctypes.addressof(data), 32)
assert libc.syscall(209, context, 1, ctypes.byref(ctypes.pointer(cb))) == 1
assert s.recv(4096)[16:20] == bytes(4)
'`, true},
		{"questions alone", "ip link; ip addr; ip route", false},
		{"a network of its own", "unshare -n ip link set lo up", false},
		{"a network of others", "nsenter -n -t $$ ip link", true},
		{"a change by somebody who may not",
			"setpriv --bounding-set=-net_admin --inh-caps=-net_admin ip link add v0 type veth", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, bundle := prepare(t, t.TempDir(), nil, "sh", "-c", c.script+"; true")
			run.Path = must(exec.LookPath("unshare"))
			run.Args = slices.Concat([]string{"unshare", "-n", program}, run.Args[1:])
			if out, err := run.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			r := readBundle(t, bundle)
			r.claims(t)
			scope, want := schema.PeerSet, new(bool)
			if c.doubt {
				scope, want = schema.DiagnosticOnly, nil
			}
			if d := cmp.Diff(want, r.exercised(t, "network_settings")); d != "" {
				t.Errorf("network_settings was exercised (-want +got):\n%s", d)
			}
			if got := r.health.NetworkEndpointClaimScope; got != scope {
				t.Errorf("the scope is %s, want %s", got, scope)
			}
		})
	}
}

// A program that resolves a name asks the kernel for interfaces and addresses. That changes nothing, so a change by
// somebody else meanwhile is no doubt.
func TestNetworksThatOthersChanged(t *testing.T) {
	need(t, "unshare", "ip", "python3")
	run, bundle := prepare(t, t.TempDir(), nil, "sh", "-c", `
		python3 -c 'import socket; socket.if_nameindex()'
		>"$1"; until grep -q other: /proc/net/dev; do sleep 0.01; done`, "sh", t.TempDir()+"/begun")
	begun := run.Args[len(run.Args)-1]
	run.Path = must(exec.LookPath("unshare"))
	run.Args = slices.Concat([]string{"unshare", "-n", "sh", "-c",
		`(until [ -e "$0" ]; do sleep 0.01; done; ip link add other type veth) & exec "$@"`, begun, program}, run.Args[1:])
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.claims(t)
	if d := cmp.Diff(new(bool), r.exercised(t, "network_settings")); d != "" {
		t.Errorf("network_settings was exercised (-want +got):\n%s", d)
	}
	if got := r.health.NetworkEndpointClaimScope; got != schema.PeerSet {
		t.Errorf("the scope is %s", got)
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
