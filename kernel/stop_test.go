//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	children["datagram"] = func([]string) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		check("socket", err)
		check("send", unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 40001, Addr: [4]byte{127, 0, 0, 1}}))
	}
}

// Stop lets Read end while it waits for the comparison of a pinned observer with this
// build, and the report says what that found.
func TestReadEndsBeforeTheComparison(t *testing.T) {
	o, err := Open(t.Context(), Config{CgroupPath: newCgroup(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	compared := make(chan error)
	o.loaded.suspect = &suspect{found: compared}
	read, stopped := make(chan error, 1), make(chan error, 1)
	go func() { read <- o.Read(func(*Event) error { return nil }, func(uint64) {}) }()
	go func() { stopped <- o.Stop() }()
	if err := <-read; err != nil {
		t.Error(err)
	}
	compared <- errors.New("it is another")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(o.Report().Reasons, func(r Reason) bool { return r.Code == CodeTampered }) {
		t.Error("the report does not say that the observer is another")
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
			t.Errorf("%s: fired %d times before Stop and %d after, emitted %d and %d", a.Name, b.Fired, a.Fired, b.Emitted, a.Emitted)
		}
	}
	if len(after.Reasons) != 0 || len(s.events) == 0 {
		t.Errorf("%d events, %+v", len(s.events), after.Reasons)
	}
}
