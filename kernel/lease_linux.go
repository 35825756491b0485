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

// lease is a session's share of a pinned set. Both files are locked for as long as
// the session lasts, and the kernel lets go of locks when their holder dies: a set
// whose lock can be had alone has no session, and a slot whose lock can be had has
// nobody in it, however its last one ended.
type lease struct {
	dir  pinDir
	set  *os.File // shared with the others
	slot *os.File // alone
	keep time.Duration
}

// restTime is how long a slot stays empty after a session. What programs were doing
// for that session on other CPUs ends with an RCU grace period, which takes some
// milliseconds; to wait for it would hold up who leaves and who comes.
const restTime = time.Second

// share takes a slot in the set that is pinned for this build, or pins one first.
func share(ring int) (_ *loaded, err error) {
	p, err := findPinDir()
	if err != nil {
		return nil, err
	}
	if err := p.nested(); err != nil {
		return nil, err
	}
	h := &lease{dir: p}
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
	l := &loaded{set: s, lease: h}
	s.sweepSlots(p)
	if l.slot, err = s.takeSlot(h, ring); err != nil {
		s.close()
		return nil, err
	}
	return l, nil
}

// open opens the set, or makes and pins it, with a slot that has a ring of that size.
func (p pinDir) open(ring int) (*set, error) {
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
	s, err := newSet(maxSlots)
	if err != nil {
		return nil, err
	}
	s.shared = true
	making := p.dir() + newInfix + strconv.Itoa(os.Getpid())
	if err = s.load(ring); err == nil {
		if s.links["sys_exit"] == nil {
			err = s.failed["sys_exit"]
		} else {
			awaitGuard()
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

// lockSlot locks a slot, or fails at once when somebody is in it.
func (p pinDir) lockSlot(number uint32) (*os.File, error) {
	path := filepath.Join(p.lock(), strconv.Itoa(int(number)))
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
}

// takeSlot takes one that nobody is in.
func (s *set) takeSlot(l *lease, ring int) (*slot, error) {
	free := func(n uint32) bool {
		e := s.session(n)
		return atomic.LoadUint64(&e.Cgroup) == 0 && (e.Left == 0 || bootTime()-e.Left > uint64(restTime))
	}
	for n := range uint32(s.slots) {
		if !free(n) {
			continue
		}
		f, err := l.dir.lockSlot(n)
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
		l.slot = f
		return s.furnish(n, ring)
	}
	return nil, fmt.Errorf("all %d sessions of the observer are in use", s.slots)
}

// release gives up the slot, and the set when it was the last.
func (l *lease) release() {
	if l.slot != nil {
		l.slot.Close()
	}
	if l.set == nil {
		return
	}
	if l.keep > 0 && l.dir.keepFor(l.keep) == nil {
		l.set.Close()
		return
	}
	l.dir.removeIfLast(l.set)
	l.set.Close()
}

// removeIfLast removes the set whose lock is given, unless somebody else has it too
// or it is to be kept.
func (p pinDir) removeIfLast(lock *os.File) bool {
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
func (p pinDir) remove() {
	old := p.dir() + oldInfix + strconv.Itoa(os.Getpid())
	if os.Rename(p.dir(), old) == nil {
		_ = os.RemoveAll(old)
	}
	_ = os.Remove(p.keeper())
	_ = os.RemoveAll(p.lock())
}
