package sockaddr

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
)

const roleCaller = "__caller"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == roleCaller {
		for _, call := range os.Args[2:] {
			op, addr, _ := strings.Cut(call, " ")
			fmt.Println(errno(perform(op, netip.MustParseAddrPort(addr))))
		}
		os.Exit(0)
	}
	os.Exit(leaktest.Of(m).Run())
}

// perform makes one call.
func perform(op string, at netip.AddrPort) error {
	kind := unix.SOCK_STREAM
	if op == "sendto" || op == "sendmmsg" {
		kind = unix.SOCK_DGRAM
	}
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
	family := unix.AF_INET6
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	switch op {
	case "connect":
		return unix.Connect(fd, sa)
	case "bind":
		return unix.Bind(fd, sa)
	case "fastopen":
		return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, sa)
	}
	return unix.Sendto(fd, []byte("x"), 0, sa)
}

func errno(err error) string {
	if e, ok := err.(unix.Errno); ok {
		return unix.ErrnoName(e)
	}
	return fmt.Sprint(err)
}

// session is a cgroup for a test.
func session(t *testing.T) *cgroup.Session {
	t.Helper()
	s, err := cgroup.Probe().NewSession(fmt.Sprintf("sockaddr-test-%d", os.Getpid()), cgroup.Limits{})
	if err != nil {
		t.Skipf("a cgroup: %v", err)
	}
	t.Cleanup(func() { s.Remove() })
	return s
}

func attach(t *testing.T, s *cgroup.Session, rules Rules, denied func(Denial)) *Guard {
	t.Helper()
	g, err := Attach(s.Path(), rules, denied)
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("BPF programs on a cgroup: %v", err)
		}
		t.Fatal(err)
	}
	return g
}

func TestRules(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	local := l.Addr().(*net.TCPAddr).Port
	port := func(format string) string { return fmt.Sprintf(format, local) }
	for _, c := range []struct {
		call           string
		strict, lo, lb string // with no rule, with Loopback, and with that and BindAny
	}{
		{"connect 192.0.2.1:80", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"connect [2001:db8::1]:80", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"connect [::ffff:192.0.2.1]:80", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"connect [::ffff:169.254.169.254]:80", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"connect [::127.0.0.1]:80", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"fastopen 192.0.2.1:80", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"sendto 192.0.2.1:53", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"sendto 224.0.0.251:5353", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"sendto [2001:db8::1]:53", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"sendto [::ffff:192.0.2.1]:53", "ENETUNREACH", "ENETUNREACH", "ENETUNREACH"},
		{"bind 0.0.0.0:0", "EADDRNOTAVAIL", "EADDRNOTAVAIL", "<nil>"},
		{"bind [::]:0", "EADDRNOTAVAIL", "EADDRNOTAVAIL", "<nil>"},
		{"bind 127.0.0.1:0", "EADDRNOTAVAIL", "<nil>", "<nil>"},
		{port("connect 127.0.0.1:%d"), "ENETUNREACH", "EINPROGRESS", "EINPROGRESS"},
		{port("connect 0.0.0.0:%d"), "ENETUNREACH", "EINPROGRESS", "EINPROGRESS"},
		{port("connect [::ffff:127.0.0.1]:%d"), "ENETUNREACH", "EINPROGRESS", "EINPROGRESS"},
		{port("sendto 127.0.0.1:%d"), "ENETUNREACH", "<nil>", "<nil>"},
	} {
		for _, as := range []struct {
			name, want string
			rules      Rules
		}{{"strict", c.strict, Rules{}}, {"loopback", c.lo, Rules{Loopback: true}},
			{"loopback and every bind", c.lb, Rules{true, true}}} {
			t.Run(as.name+"/"+c.call, func(t *testing.T) {
				s := session(t)
				var mu sync.Mutex
				var told []Denial
				g := attach(t, s, as.rules, func(d Denial) { mu.Lock(); told = append(told, d); mu.Unlock() })
				got := call(t, s, c.call)
				sum, err := g.Close()
				if err != nil || got != as.want {
					t.Errorf("%s, want %s (%v)", got, as.want, err)
				}
				denied := as.want == "ENETUNREACH" || as.want == "EADDRNOTAVAIL"
				if !denied {
					if len(told) != 0 || sum != (Tally{}) {
						t.Errorf("allowed, and told %v, counted %v", told, sum)
					}
					return
				}
				op, addr, _ := strings.Cut(c.call, " ")
				want := netip.MustParseAddrPort(addr)
				if len(told) != 1 || told[0].Addr.Addr().Unmap() != want.Addr().Unmap() ||
					told[0].Addr.Port() != want.Port() || told[0].Bind != (op == "bind") || sum != (Tally{Denied: 1}) {
					t.Errorf("told %+v, counted %+v", told, sum)
				}
				if now := bootTime(); len(told) == 1 && (told[0].Time > now || now-told[0].Time > uint64(time.Minute)) {
					t.Errorf("at %d, and now is %d", told[0].Time, now)
				}
			})
		}
	}
}

func bootTime() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(ts.Nano())
}

// call makes calls in the session and returns how they went.
func call(t *testing.T, s *cgroup.Session, calls ...string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{roleCaller}, calls...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.Agent().Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	return strings.TrimSpace(out.String())
}

// TestEveryDenialIsCounted makes more denials than the ring holds while nothing reads: those that are not reported
// are counted as lost.
func TestEveryDenialIsCounted(t *testing.T) {
	s := session(t)
	const calls = 6000 // of 48 bytes in a ring of 64 KiB
	told, hold := uint64(0), make(chan struct{})
	g := attach(t, s, Rules{}, func(Denial) { <-hold; told++ })
	list := make([]string, calls)
	for i := range list {
		list[i] = "sendto 192.0.2.1:53"
	}
	call(t, s, list...)
	close(hold)
	sum, err := g.Close()
	if err != nil || sum.Denied != calls || sum.Lost == 0 || told+sum.Lost != calls {
		t.Errorf("%d told, counted %+v, %v", told, sum, err)
	}
}

func TestAttachErrors(t *testing.T) {
	if _, err := Attach("/nonexistent", Rules{}, nil); err == nil {
		t.Error("attached to a cgroup that does not exist")
	}
	if _, err := Attach(t.TempDir(), Rules{}, nil); err == nil {
		t.Error("attached to what is no cgroup")
	}
}

func TestDecode(t *testing.T) {
	b := make([]byte, binary.Size(programsDenial{}))
	if _, ok := decode(b[:8]); ok {
		t.Error("decoded a record that is too short")
	}
	b[26] = 99 // hook
	if _, ok := decode(b); ok {
		t.Error("decoded a hook that does not exist")
	}
}

func BenchmarkAttach(b *testing.B) {
	s, err := cgroup.Probe().NewSession(fmt.Sprintf("sockaddr-bench-%d", os.Getpid()), cgroup.Limits{})
	if err != nil {
		b.Skipf("a cgroup: %v", err)
	}
	defer s.Remove()
	for b.Loop() {
		g, err := Attach(s.Path(), Rules{}, func(Denial) {})
		if err != nil {
			if os.Geteuid() != 0 {
				b.Skipf("BPF programs on a cgroup: %v", err)
			}
			b.Fatal(err)
		}
		g.Close()
	}
}
