//go:build linux && (amd64 || arm64)

package kernel

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	children["opens-on"] = func([]string) {
		for i := 0; ; i++ {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
			check("open", err)
			unix.Close(fd)
			if i == 1000 {
				os.Stdout.Write([]byte{'.'})
			}
		}
	}
	children["datagram"] = func([]string) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		check("socket", err)
		check("send", unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 40001, Addr: [4]byte{127, 0, 0, 1}}))
	}
}

// What runs in the cgroup after Stop is not the session's, although the programs of its
// sockets are attached until Close.
func TestNothingIsSeenAfterStop(t *testing.T) {
	s := observe(t, Config{SelfTest: true})
	s.run(s.child("datagram"))
	s.o.Hurry()
	s.run(s.child("datagram"))
	s.end()
	before := s.report
	s.o.final = nil // read the counters again
	s.run(s.child("datagram"))
	after := s.o.Report()
	checkAccount(t, after)
	for h := range after.Hooks {
		if a, b := after.Hooks[h], before.Hooks[h]; a.Fired != b.Fired || a.Emitted != b.Emitted {
			t.Errorf("%s: fired %d times before Stop and %d after, emitted %d and %d", a.Name, b.Fired, a.Fired,
				b.Emitted, a.Emitted)
		}
	}
	if len(after.Reasons) != 0 || len(s.events) == 0 {
		t.Errorf("%d events, %+v", len(s.events), after.Reasons)
	}
}

// What is under way on another CPU when a session ends is in its account, or in none of it.
func TestTheAccountOfASessionThatGoesOn(t *testing.T) {
	n := 20
	if testing.Short() {
		n = 3
	}
	for range n {
		s := observe(t, Config{})
		c := s.child("opens-on")
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadFull(out, make([]byte, 1)) // it is at it
		s.end()
		c.Process.Kill()
		c.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
}
