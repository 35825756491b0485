//go:build linux && amd64

package truthtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// connection is one to a server of the test's, which has sent ten bytes, as a file, and its two addresses.
func connection(t *testing.T) (f *os.File, local, remote string) {
	t.Helper()
	server := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { server.Close() })
	client := must(net.Dial("tcp", server.Addr().String()))
	t.Cleanup(func() { client.Close() })
	peer := must(server.Accept())
	t.Cleanup(func() { peer.Close() })
	must(peer.Write([]byte("0123456789")))
	f = must(client.(*net.TCPConn).File())
	t.Cleanup(func() { f.Close() })
	return f, client.LocalAddr().String(), server.Addr().String()
}

// foreign runs a case of testdata/reach.py with stdin and further descriptors from the test, as root or another user.
func foreign(t *testing.T, options []string, stdin *os.File, more []*os.File, words ...string) recording {
	t.Helper()
	need(t, "python3")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	script := must(os.ReadFile("testdata/reach.py"))
	run, bundle := prepare(t, dir, nil, append([]string{"/usr/bin/python3", "-S", "-c", string(script)}, words...)...)
	// a reason is no failure here
	run.Args = slices.DeleteFunc(run.Args, func(a string) bool { return a == "--kernel" || a == "require" })
	run.Args = slices.Insert(run.Args, 1, append(options, "--no-capture")...)
	run.Stdin, run.ExtraFiles = stdin, more
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return readBundle(t, bundle)
}

// sent returns one end of a pair of sockets, where a message with a file waits.
func sent(t *testing.T, file *os.File) *os.File {
	t.Helper()
	pair := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	inside, outside := os.NewFile(uintptr(pair[0]), "inside"), os.NewFile(uintptr(pair[1]), "outside")
	t.Cleanup(func() { inside.Close(); outside.Close() })
	if err := unix.Sendmsg(pair[1], []byte("x"), unix.UnixRights(int(file.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	return inside
}

// sockets are the addresses of the sockets that the run did not make and used.
func (r *recording) sockets() (list []string) {
	for i := range r.events {
		e := &r.events[i]
		if e.Kind == schema.KindForeignSocket && e.Class == schema.ClassAgent && !strings.HasPrefix(e.Value, "unix:") {
			list = append(list, e.Local+" "+e.Value)
		}
	}
	return list
}

// A socket that the run did not make is told of when the run uses it, with the addresses that it has, and its
// peer is one of the run's. Where threads could hide the use, the set of peers is not claimed.
func TestSocketsFromElsewhere(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name, scope string
		used        bool
	}{
		{"received", schema.PeerSet, true},
		{"received_behind", schema.PeerSet, true},
		{"received_by_thread", schema.DiagnosticOnly, true},
		{"passed", schema.PeerSet, false},
		{"listener_given_away", schema.DiagnosticOnly, false},
		{"unpassed", schema.PeerSet, false},
		{"unused", schema.PeerSet, false},
	} {
		for _, as := range users {
			if c.name == "listener_given_away" && as.name == "sandbox" {
				c.name, c.scope = "listener_refused", schema.PeerSet
			}
			t.Run(c.name+"/"+as.name, func(t *testing.T) {
				socket, local, remote := connection(t)
				r := foreign(t, as.options, sent(t, socket), nil, c.name)
				r.claims(t)
				if got := r.health.NetworkEndpointClaimScope; got != c.scope {
					t.Errorf("the scope is %s, want %s", got, c.scope)
				}
				var want, endpoints []string
				if c.used {
					want, endpoints = []string{local + " " + remote}, []string{remote}
				}
				if d := cmp.Diff(want, r.sockets(), cmpopts.EquateEmpty()); d != "" {
					t.Errorf("sockets (-want +got):\n%s", d)
				}
				if d := cmp.Diff(endpoints, tcp(r.surface.NetworkEndpoints), cmpopts.EquateEmpty()); d != "" {
					t.Errorf("endpoints (-want +got):\n%s", d)
				}
			})
		}
	}
}

// tcp are the endpoints that are no unix sockets.
func tcp(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return strings.Contains(s, "unix:") })
}

// A DNS question over a socket that the run did not make has no line of its own. The layer is not complete then.
func TestQuestionsOverSocketsFromElsewhere(t *testing.T) {
	need(t, "python3")
	for port, want := range map[int]bool{53: true, 9: false} {
		c := must(net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}))
		socket := must(c.File())
		c.Close()
		r := reach(t, "handed_question", socket)
		socket.Close()
		var reasons []string
		if want {
			reasons = []string{schema.CodeBlindSpot}
		}
		r.claims(t, reasons...)
		if d := cmp.Diff(&want, r.exercised(t, "handed_names")); d != "" {
			t.Errorf("port %d: handed_names was exercised (-want +got):\n%s", port, d)
		}
		if len(r.sockets()) != 1 {
			t.Errorf("port %d: sockets %q", port, r.sockets())
		}
	}
}

// Whichever call uses it first.
func TestInheritedSockets(t *testing.T) {
	need(t)
	const calls = 12
	var files []*os.File
	var want []string
	for range calls {
		f, local, remote := connection(t)
		files, want = append(files, f), append(want, local+" "+remote)
	}
	r := foreign(t, nil, nil, files, "inherited")
	r.claims(t)
	if got := r.health.NetworkEndpointClaimScope; got != schema.PeerSet {
		t.Errorf("the scope is %s", got)
	}
	if d := cmp.Diff(want, r.sockets()); d != "" {
		t.Errorf("sockets (-want +got):\n%s", d)
	}
}

// What the command begins with is listed, whether it uses it or not; the peers of sockets are the run's. What the
// recorder has opened is not among it. Other users, and sandboxes, get the standard streams alone.
func TestDescriptorsAtTheStart(t *testing.T) {
	need(t)
	for _, as := range users {
		t.Run(as.name, func(t *testing.T) {
			stdin, near, far := connection(t)
			socket, local, remote := connection(t)
			file := must(os.Open("/etc/hostname"))
			defer file.Close()
			pair := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
			one, other := os.NewFile(uintptr(pair[0]), "one"), os.NewFile(uintptr(pair[1]), "other")
			defer one.Close()
			defer other.Close()
			r := foreign(t, as.options, stdin, []*os.File{socket, file, one}, "unused")
			r.claims(t)
			want := []schema.Inherited{
				{FD: 0, Type: "socket", Access: "read_write", Protocol: "tcp", Local: near, Peer: far},
				{FD: 1, Type: "pipe", Access: "write"}, {FD: 2, Type: "pipe", Access: "write"},
			}
			lines := []string{fmt.Sprint("[0] tcp ", near, " ", far)}
			endpoints := []string{far}
			if len(as.options) == 0 {
				want = append(want,
					schema.Inherited{FD: 3, Type: "socket", Access: "read_write", Protocol: "tcp", Local: local,
						Peer: remote},
					schema.Inherited{FD: 4, Type: "file", Access: "read", Path: "/etc/hostname"},
					schema.Inherited{FD: 5, Type: "socket", Access: "read_write", Protocol: "unix"})
				lines = append(lines, fmt.Sprint("[3] tcp ", local, " ", remote))
				endpoints = append(endpoints, remote)
			}
			got := slices.DeleteFunc(r.began, func(d schema.Inherited) bool { return d.FD > 5 }) // of who runs the test
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("descriptors (-want +got):\n%s", d)
			}
			var told []string
			for i := range r.events {
				if e := &r.events[i]; e.Kind == schema.KindInherited && e.Class == schema.ClassAgent && e.Args[0] <= 5 {
					told = append(told, fmt.Sprint(e.Args, " ", e.Protocol, " ", e.Local, " ", e.Value))
				}
			}
			if d := cmp.Diff(lines, told); d != "" {
				t.Errorf("lines (-want +got):\n%s", d)
			}
			slices.Sort(endpoints)
			if d := cmp.Diff(endpoints, tcp(r.surface.NetworkEndpoints)); d != "" {
				t.Errorf("endpoints (-want +got):\n%s", d)
			}
		})
	}
}

// What the command begins with can be the memory of a process outside, or a ring of io_uring, which exchanges data
// as its maker likes.
func TestPowersAtTheStart(t *testing.T) {
	need(t, "sleep")
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	var maps string
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/maps", other.Process.Pid))))) {
		if from, _, found := strings.Cut(line, "-"); found && maps == "" {
			maps = from
		}
	}
	memory := must(os.Open(fmt.Sprintf("/proc/%d/mem", other.Process.Pid)))
	defer memory.Close()
	at := must(strconv.ParseUint(maps, 16, 64))
	r := foreign(t, nil, memory, nil, "read_memory", "0", fmt.Sprint(at))
	r.claims(t, "outside_process_traced")

	var params [120]byte
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	ring := os.NewFile(fd, "ring")
	defer ring.Close()
	r = foreign(t, nil, ring, nil, "unused")
	r.claims(t)
	if got := r.health.NetworkEndpointClaimScope; got != schema.DiagnosticOnly {
		t.Errorf("the scope is %s", got)
	}
}

// A process that is attached to has descriptors as well: they are listed, and the peers of its sockets are the run's.
func TestDescriptorsWhenAttached(t *testing.T) {
	need(t, "sleep")
	top := unified()
	if top == "" {
		t.Skip("no cgroup2 hierarchy is mounted")
	}
	dir := must(os.MkdirTemp(top, "truth-"))
	defer os.Remove(dir)
	group := must(os.Open(dir))
	defer group.Close()
	socket, local, remote := connection(t)
	file := must(os.Open("/etc/hostname"))
	defer file.Close()
	other := exec.Command("sleep", "600")
	other.Stdin, other.ExtraFiles = file, []*os.File{socket}
	other.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	bundle := t.TempDir() + "/attached.tar.gz"
	attach := exec.Command(program, "attach", "-q", "--cgroup", dir, "-o", bundle, "--", "true")
	if out, err := attach.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	want := []schema.Inherited{
		{PID: other.Process.Pid, FD: 0, Type: "file", Access: "read", Path: "/etc/hostname"},
		{PID: other.Process.Pid, FD: 3, Type: "socket", Access: "read_write", Protocol: "tcp", Local: local,
			Peer: remote},
	}
	got := slices.DeleteFunc(r.began, func(d schema.Inherited) bool { return d.FD != 0 && d.FD != 3 })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("descriptors (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{remote}, tcp(r.surface.NetworkEndpoints)); d != "" {
		t.Errorf("endpoints (-want +got):\n%s", d)
	}
}

// Requests of io_uring tell of sockets as calls do.
func TestInheritedSocketsInIOUring(t *testing.T) {
	need(t)
	var files []*os.File
	var want []string
	for range 5 {
		f, local, remote := connection(t)
		files, want = append(files, f), append(want, local+" "+remote)
	}
	run, bundle := prepare(t, t.TempDir(), nil, helper, "uring-inherited")
	run.ExtraFiles = files
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.claims(t)
	if d := cmp.Diff(want, r.sockets()); d != "" {
		t.Errorf("sockets (-want +got):\n%s", d)
	}
}

// io_uring receives sockets as recvmsg does.
func TestSocketsReceivedByIOUring(t *testing.T) {
	need(t)
	socket, local, remote := connection(t)
	run, bundle := prepare(t, t.TempDir(), nil, helper, "uring-received")
	run.Stdin = sent(t, socket)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.claims(t)
	// A ring could have used it as a fixed file, as by a splice, where nothing shows that.
	if got := r.health.NetworkEndpointClaimScope; got != schema.DiagnosticOnly {
		t.Errorf("the scope is %s", got)
	}
	if d := cmp.Diff([]string{local + " " + remote}, r.sockets()); d != "" {
		t.Errorf("sockets (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{remote}, tcp(r.surface.NetworkEndpoints)); d != "" {
		t.Errorf("endpoints (-want +got):\n%s", d)
	}
}

// What pidfd_getfd takes from a process is told of, too, and a file is no socket.
func TestSocketsTakenFromProcesses(t *testing.T) {
	need(t, "sleep")
	socket, local, remote := connection(t)
	r := foreign(t, nil, nil, nil, "taken", "0", strconv.Itoa(os.Getpid()), fmt.Sprint(socket.Fd()))
	r.claims(t)
	if d := cmp.Diff([]string{local + " " + remote}, r.sockets()); d != "" {
		t.Errorf("sockets (-want +got):\n%s", d)
	}
	if got := r.health.NetworkEndpointClaimScope; got != schema.PeerSet {
		t.Errorf("the scope is %s", got)
	}
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	r = foreign(t, nil, nil, nil, "taken_file", strconv.Itoa(other.Process.Pid))
	r.claims(t)
	if got := r.health.NetworkEndpointClaimScope; got != schema.PeerSet || len(r.sockets()) > 0 {
		t.Errorf("the scope is %s, with %q", got, r.sockets())
	}
}

// Whom another process connects a socket of the run to is a peer of the run's.
func TestSocketsConnectedByOthers(t *testing.T) {
	need(t)
	server := must(net.Listen("tcp", "127.0.0.1:0"))
	defer server.Close()
	port := server.Addr().(*net.TCPAddr).Port
	pair := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	inside, outside := os.NewFile(uintptr(pair[0]), "inside"), os.NewFile(uintptr(pair[1]), "outside")
	defer inside.Close()
	defer outside.Close()
	done := make(chan error, 1)
	go func() {
		data, control := make([]byte, 1), make([]byte, 100)
		_, n, _, _, err := unix.Recvmsg(pair[1], data, control, 0)
		if err == nil {
			messages := must(unix.ParseSocketControlMessage(control[:n]))
			fd := must(unix.ParseUnixRights(&messages[0]))[0]
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
			unix.Close(fd)
			unix.Write(pair[1], data)
		}
		done <- err
	}()
	r := foreign(t, nil, inside, nil, "given_away")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{server.Addr().String()}, tcp(r.surface.NetworkEndpoints)); d != "" {
		t.Errorf("endpoints (-want +got):\n%s", d)
	}
}

// A file that a process outside hands over can be one that the run may not open: the bundle says that it may have
// got one, however the socket came to lead outside. The kernel makes the server's end of a connection in the name
// of the run.
func TestFilesHandedOver(t *testing.T) {
	need(t, "python3")
	no, scope := yes(false), schema.PeerSet
	for _, c := range []struct {
		name  string
		spot  *bool // passed_descriptors
		scope string
	}{
		{"served", nil, scope},
		{"served_bytes", no, scope},
		{"served_bytes_by_thread", nil, schema.DiagnosticOnly}, // which could have hidden what came
		{"served_by_datagram", nil, schema.DiagnosticOnly},
		{"served_before_connecting", nil, schema.DiagnosticOnly},
		{"listens_for_others", nil, scope},
		{"own_server", no, scope},
		{"own_bytes_by_thread", no, scope},
	} {
		for _, as := range users[:2] { // a sandbox refuses the connection
			t.Run(c.name+"/"+as.name, func(t *testing.T) {
				dir := must(os.MkdirTemp("", "served-")) // t.TempDir's are the test's user's
				defer os.RemoveAll(dir)
				listener := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
				file := os.NewFile(uintptr(listener), "listener")
				defer file.Close()
				path := dir + "/server"
				if err := errors.Join(os.Chmod(dir, 0o755), unix.Bind(listener, &unix.SockaddrUnix{Name: path}),
					os.Chmod(path, 0o777),
					unix.Listen(listener, 1)); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- handOver(listener, c.name) }()
				defer func() {
					unix.Shutdown(listener, unix.SHUT_RDWR) // which ends an accept
					if err := <-done; err != nil {
						t.Error(err)
					}
				}()
				r := foreign(t, as.options, file, nil, c.name, "0", path)
				r.claims(t)
				if d := cmp.Diff(c.spot, r.exercised(t, "passed_descriptors")); d != "" {
					t.Errorf("passed_descriptors was exercised (-want +got):\n%s", d)
				}
				if got := r.health.NetworkEndpointClaimScope; got != c.scope {
					t.Errorf("the scope is %s, want %s", got, c.scope)
				}
			})
		}
	}
}

// handOver answers the first connection with a byte, and a file but for the cases that are about bytes; where the
// case is about datagrams, the file goes to the socket that the connection names.
func handOver(listener int, name string) error {
	fd, _, err := unix.Accept(listener)
	if err == unix.EINVAL { // nobody connected
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var rights []byte
	if !strings.Contains(name, "bytes") {
		file, err := os.Open("/etc/hostname")
		if err != nil {
			return err
		}
		defer file.Close()
		rights = unix.UnixRights(int(file.Fd()))
	}
	if !strings.Contains(name, "datagram") && !strings.Contains(name, "connecting") {
		return unix.Sendmsg(fd, []byte("x"), rights, nil, 0)
	}
	out, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	path := make([]byte, 108)
	n, err := unix.Read(fd, path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendmsg(out, []byte("x"), rights, &unix.SockaddrUnix{Name: string(path[:n])}, 0),
		unix.Sendmsg(fd, []byte("x"), nil, nil, 0))
}

func yes(v bool) *bool { return &v }

// exercised is whether the run used a blind spot, nil where that is not known. The health has no others.
func (r *recording) exercised(t *testing.T, id string) *bool {
	t.Helper()
	if _, ok := schema.BlindSpots[id]; !ok {
		t.Errorf("there is no blind spot %s", id)
	}
	for _, c := range r.health.Coverage {
		for _, s := range c.KnownBlindSpots {
			if s.ID == id {
				return s.Exercised
			}
		}
	}
	return new(false)
}
