//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// hold is a session's share of a pinned set. Both files are locked for as long as
// the session lasts, and the kernel lets go of locks when their holder dies: a set
// whose lock can be had alone has no session, and a seat whose lock can be had has
// nobody in it, however its last one ended.
type hold struct {
	site site
	set  *os.File // shared with the others
	seat *os.File // alone
	keep time.Duration
}

// restTime is how long a seat stays empty after a session. What programs were doing
// for that session on other CPUs ends with an RCU grace period, which takes some
// milliseconds; to wait for it would hold up who leaves and who comes.
const restTime = time.Second

// share takes a seat in the set that is pinned for this build, or pins one first.
func share(ring int) (_ *loaded, err error) {
	p, err := findPlace()
	if err != nil {
		return nil, err
	}
	if err := p.nested(); err != nil {
		return nil, err
	}
	h := &hold{site: p}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	var s *set
	for try := 0; s == nil; try++ {
		if h.set, err = lockMade(p.lock(), unix.LOCK_SH); err != nil {
			return nil, err
		}
		s, err = p.open(ring)
		if err == nil {
			break
		}
		// What is not whole goes if nobody needs it.
		if try == 2 || unix.Flock(int(h.set.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, fmt.Errorf("the observer pinned in %s is incomplete: %w", p.dir(), err)
		}
		p.remove()
		h.set.Close()
		h.set = nil
	}
	l := &loaded{set: s, hold: h}
	s.sweepSeats(p)
	if l.seat, err = s.takeSeat(h, ring); err != nil {
		s.close()
		return nil, err
	}
	return l, nil
}

// open opens the set, or makes and pins it, with a seat that has a ring of that size.
func (p site) open(ring int) (*set, error) {
	_, err := os.Lstat(p.dir())
	if err == nil {
		return openSet(p.dir())
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	home, err := lockDir(p.home, unix.LOCK_EX) // who builds
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if _, err := os.Lstat(p.dir()); err == nil {
		home.Close() // or those that waited for the set would open it one after the other
		return openSet(p.dir())
	}
	p.sweepUnfinished()
	s, err := newSet(maxSeats)
	if err != nil {
		return nil, err
	}
	s.shared = true
	making := p.dir() + newInfix + strconv.Itoa(os.Getpid())
	if err = s.load(ring); err == nil {
		if s.links["sys_exit"] == nil {
			err = s.failed["sys_exit"]
		} else {
			awaitCover()
			err = s.pin(making)
		}
	}
	if err == nil {
		if err = os.Rename(making, p.dir()); err != nil {
			err = errors.Join(err, os.RemoveAll(making))
		} else {
			s.pins, err = pinsIn(p.dir())
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// lockSeat locks a seat, or fails at once when somebody is in it.
func (p site) lockSeat(number uint32) (*os.File, error) {
	path := filepath.Join(p.lock(), strconv.Itoa(int(number)))
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
}

// takeSeat takes one that nobody is in.
func (s *set) takeSeat(h *hold, ring int) (*seat, error) {
	free := func(n uint32) bool {
		e := s.session(n)
		return atomic.LoadUint64(&e.Cgroup) == 0 && (e.Left == 0 || bootTime()-e.Left > uint64(restTime))
	}
	for n := range uint32(s.seats) {
		if !free(n) {
			continue
		}
		f, err := h.site.lockSeat(n)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !free(n) {
			f.Close()
			continue
		}
		h.seat = f
		return s.furnish(n, ring)
	}
	return nil, fmt.Errorf("all %d sessions of the observer are in use", s.seats)
}

// release gives up the seat, and the set when it was the last.
func (h *hold) release() {
	if h.seat != nil {
		h.seat.Close()
	}
	if h.set == nil {
		return
	}
	if h.keep > 0 && h.site.keepFor(h.keep) == nil {
		h.set.Close()
		return
	}
	h.site.removeIfLast(h.set)
	h.set.Close()
}

// removeIfLast removes the set whose lock is given, unless somebody else has it too
// or it is to be kept.
func (p site) removeIfLast(lock *os.File) bool {
	if _, err := os.Lstat(p.keep()); err == nil {
		return false
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	p.remove()
	return true
}

// remove removes the set, whose lock the caller has alone. What is pinned hangs on
// its pins, so this detaches it. Who waits for the lock finds another.
func (p site) remove() {
	old := p.dir() + oldInfix + strconv.Itoa(os.Getpid())
	if os.Rename(p.dir(), old) == nil {
		_ = os.RemoveAll(old)
	}
	_ = os.Remove(p.keeper())
	_ = os.RemoveAll(p.lock())
}
