//go:build linux && (amd64 || arm64)

package kernel

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	// Connections that return EINPROGRESS, as those of nearly every program to
	// another host: the listener's backlog is full until they have returned.
	children["background"] = func([]string) {
		l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		check("socket", err)
		check("bind", unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		check("listen", unix.Listen(l, 0))
		self, err := unix.Getsockname(l)
		check("getsockname", err)
		addr := self.(*unix.SockaddrInet4)
		os.WriteFile("tcp", []byte(netip.AddrPortFrom(netip.AddrFrom4(addr.Addr), uint16(addr.Port)).String()), 0o600)
		var clients []int
		for range 4 {
			c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			check("socket", err)
			if err := unix.Connect(c, addr); err != unix.EINPROGRESS {
				check("connect", err)
			}
			clients = append(clients, c)
		}
		unix.Close(clients[3]) // given up
		// Room for the others, whose SYN the kernel sends again after a second.
		go func() {
			for {
				unix.Accept(l)
			}
		}()
		for _, c := range clients[:3] {
			fds := []unix.PollFd{{Fd: int32(c), Events: unix.POLLOUT}}
			unix.Poll(fds, 5000)
		}
	}
}

func TestConnectionsInTheBackground(t *testing.T) {
	s := observe(t, Config{})
	dir := t.TempDir()
	c := s.child("background")
	c.Dir = dir
	s.run(c)
	s.end()
	addr, err := os.ReadFile(filepath.Join(dir, "tcp"))
	if err != nil {
		t.Fatal(err)
	}
	tcp := netip.MustParseAddrPort(string(addr))
	made, givenUp := 0, 0
	for _, e := range s.find(schema.KindConnectResult, func(e *Event) bool { return e.Peer == tcp }) {
		switch {
		case !e.HasResult:
			givenUp++
		case e.Errno == 0:
			made++
		default:
			t.Errorf("a connection ended with errno %d", e.Errno)
		}
	}
	if made != 3 || givenUp != 1 {
		t.Errorf("%d connections were made and %d given up; want 3 and 1", made, givenUp)
	}
}
