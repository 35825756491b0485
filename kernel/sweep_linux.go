//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sweepUnfinished removes what makers and removers that died left half done. The
// caller is the only one to make something.
func (p pinDir) sweepUnfinished() {
	entries, _ := os.ReadDir(p.home)
	for _, e := range entries {
		if strings.Contains(e.Name(), newInfix) {
			_ = os.RemoveAll(filepath.Join(p.home, e.Name()))
		}
		if _, pid, old := strings.Cut(e.Name(), oldInfix); old {
			if n, err := strconv.Atoi(pid); err == nil && hasEnded(n) {
				_ = os.RemoveAll(filepath.Join(p.home, e.Name()))
			}
		}
	}
}

// hasEnded tells whether a process has ended, which one that nobody has waited for yet has.
func hasEnded(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err == unix.ESRCH
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// Sweep frees what runs that died left in the observers that runs share, also in
// those of other builds: slots, and the programs where nobody is left. It returns
// how many of each. It waits for nobody.
func Sweep() (slots, sets int, err error) {
	p, err := findPinDir()
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
		other := pinDir{home: p.home, name: name}
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
					slots += s.sweepSlots(p)
					s.close()
				}
				if other.removeIfLast(lock) { // the last session may have left, and met us
					sets++
				}
			}
		}
		lock.Close()
	}
	return slots, sets, nil
}

// sweepSlots frees the slots of runs that died.
func (s *set) sweepSlots(p pinDir) (freed int) {
	for n := range uint32(s.slots) {
		e := s.session(n)
		if atomic.LoadUint64(&e.Cgroup) == 0 {
			continue
		}
		f, err := p.lockSlot(n)
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
