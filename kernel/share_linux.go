//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
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

// errNested: the outer run cannot tell our changes to what it depends on from an
// attack.
var errNested = errors.New("this process is itself being observed, and must not touch the observer's files")

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
		s, err = p.open()
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

// open opens the set, or makes and pins it.
func (p site) open() (*set, error) {
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
		return openSet(p.dir())
	}
	p.sweepUnfinished()
	s, err := newSet(maxSeats)
	if err != nil {
		return nil, err
	}
	s.shared = true
	making := p.dir() + newInfix + strconv.Itoa(os.Getpid())
	if err = s.load(); err == nil {
		s.attach()
		if s.links["sys_exit"] == nil {
			err = s.failed["sys_exit"]
		} else if s.made, err = s.ids(); err == nil {
			err = s.pin(making)
		}
	}
	if err == nil {
		if err = os.Rename(making, p.dir()); err != nil {
			err = errors.Join(err, os.RemoveAll(making))
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// nested tells whether this process is in a session of the pinned set. It only
// reads.
func (p site) nested() error {
	numbers, err := ebpf.LoadPinnedMap(filepath.Join(p.dir(), pinName("map", "numbers")), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer numbers.Close()
	ids, err := ownCgroups()
	if err != nil {
		return err
	}
	for _, id := range ids {
		var number uint32
		if numbers.Lookup(id, &number) == nil {
			return errNested
		}
	}
	return nil
}

// ownCgroups are the ids of this process's cgroup2 directory and those above it.
func ownCgroups() (ids []uint64, err error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			var fs unix.Statfs_t
			if unix.Statfs(root, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
				continue
			}
			for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
				var st unix.Stat_t
				if err := unix.Stat(root+dir, &st); err != nil {
					return nil, fmt.Errorf("find the cgroup of this process: %w", &os.PathError{Op: "stat", Path: root + dir, Err: err})
				}
				ids = append(ids, st.Ino)
				if dir == "/" || dir == "." {
					return ids, nil
				}
			}
		}
	}
	return nil, errors.New("cannot find the cgroup of this process")
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

// sweepSeats frees the seats of runs that died.
func (s *set) sweepSeats(p site) (freed int) {
	for n := range uint32(s.seats) {
		e := s.session(n)
		if atomic.LoadUint64(&e.Cgroup) == 0 {
			continue
		}
		f, err := p.lockSeat(n)
		if err != nil {
			continue
		}
		if cgroup := atomic.LoadUint64(&e.Cgroup); cgroup != 0 {
			_ = s.maps["numbers"].Delete(cgroup)
			s.changed()
			atomic.StoreUint64(&e.Left, bootTime())
			atomic.StoreUint64(&e.Cgroup, 0)
			freed++
		}
		f.Close()
	}
	return freed
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

// sweepUnfinished removes what makers and removers that died left half done. The
// caller is the only one to make something.
func (p site) sweepUnfinished() {
	entries, _ := os.ReadDir(p.home)
	for _, e := range entries {
		if strings.Contains(e.Name(), newInfix) {
			_ = os.RemoveAll(filepath.Join(p.home, e.Name()))
		}
		if _, pid, old := strings.Cut(e.Name(), oldInfix); old {
			if n, err := strconv.Atoi(pid); err == nil && errors.Is(unix.Kill(n, 0), unix.ESRCH) {
				_ = os.RemoveAll(filepath.Join(p.home, e.Name()))
			}
		}
	}
}

// Sweep frees what runs that died left in the observers that runs share, also in
// those of other builds: seats, and the programs where nobody is left. It returns
// how many of each. It waits for nobody.
func Sweep() (seats, sets int, err error) {
	p, err := findPlace()
	if err != nil {
		return 0, 0, err
	}
	if home, err := lockDir(p.home, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		p.sweepUnfinished()
		home.Close()
	}
	entries, err := os.ReadDir(p.home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), lockSuffix)
		if !ok {
			continue
		}
		other := site{home: p.home, name: name}
		lock, err := lockDir(other.lock(), unix.LOCK_SH|unix.LOCK_NB)
		if err != nil {
			continue
		}
		if other.removeIfLast(lock) {
			sets++
		} else if name == p.name {
			// A failed attempt to have the lock alone gives it up.
			if unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
				if s, err := openSet(p.dir()); err == nil {
					seats += s.sweepSeats(p)
					s.close()
				}
			}
		}
		lock.Close()
	}
	return seats, sets, nil
}
