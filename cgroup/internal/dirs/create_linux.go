package dirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

const parentName = "assay-run"

// make makes the session directory in one place, or its slice.
func (s *Session) make(p place, l Limits) (dir, error) {
	if l.Slice {
		return s.createSlice(p, l)
	}
	return s.create(p)
}

// create makes the session directory in one place and locks it. The lock is
// what tells a live session from a stale one (see Sweep): it goes with the
// runner and the guard, however they end. A guard at work would not tell
// another run's session under the same id from its own.
func (s *Session) create(p place) (dir, error) {
	parent := filepath.Join(p.base, parentName)
	path := filepath.Join(parent, s.runID)
	end := time.Now().Add(procs.LockWait)
	for range 100 {
		fd, err := p.open(parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by a session that just ended
		} else if err != nil {
			return dir{}, err
		}
		// In the very directory that is locked, which may be another by now.
		err = notMade(path, unix.Mkdirat(fd, s.runID, 0o755))
		var lock int
		if err == nil { // nobody removes it under our lock of the parent
			if lock, err = lockAt(fd, s.runID); err != nil {
				err = &os.PathError{Op: "lock cgroup", Path: path, Err: err}
			}
		}
		unix.Close(fd)
		switch {
		case err == nil:
			made := dir{
				path: path, v2: p.h.v2, freezer: !p.h.v2 && p.h.has("freezer"),
				number: p.h.number, controllers: strings.Join(p.h.controllers, ","), limited: len(p.limits) > 0,
			}
			s.locks = append(s.locks, lock)
			s.host.count(parent, 1)
			return made, nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		case errors.Is(err, fs.ErrExist):
			if lock, err := lockDir(path); err == nil {
				err = sweepDir(dir{path: path, v2: p.h.v2, freezer: p.h.has("freezer")}, func() {})
				unix.Close(lock)
				if err != nil {
					return dir{}, err
				}
			} else if errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end) {
				time.Sleep(procs.LockLook)
			} else if errors.Is(err, unix.EWOULDBLOCK) {
				return dir{}, fmt.Errorf("cgroup %s: %w", path, procs.ErrInUse)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return dir{}, err
			}
		default:
			_ = unix.Rmdir(parent) // fails if others have sessions there
			return dir{}, err
		}
	}
	return dir{}, fmt.Errorf("cgroup %s keeps being removed by somebody else", parent)
}

// open makes, opens and share-locks the parent of the sessions, which keeps
// sweepers off a session between its creation and its lock.
func (p place) open(parent string) (int, error) {
	if err := makeDir(parent); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, err
	}
	fd, err := unix.Open(parent, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: parent, Err: err}
	}
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "lock", Path: parent, Err: err}
	}
	if p.h.v2 {
		for _, k := range words(filepath.Join(p.base, "cgroup.subtree_control")) {
			if slices.Contains(kinds, k) {
				_ = write(filepath.Join(parent, "cgroup.subtree_control"), "+"+k)
			}
		}
	}
	return fd, nil
}

// lockDir takes a session directory's lock, or fails with EWOULDBLOCK where a
// live runner has it.
func lockDir(path string) (int, error) {
	fd, err := lockAt(unix.AT_FDCWD, path)
	if err != nil {
		return -1, err
	}
	// It may have been removed, and unlocked, after it was opened.
	var opened, there unix.Stat_t
	if err = errors.Join(unix.Fstat(fd, &opened), unix.Stat(path, &there)); err == nil && opened.Ino != there.Ino {
		err = unix.ENOENT
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// lockAt is lockDir for a directory that nobody can have removed meanwhile.
func lockAt(at int, path string) (int, error) {
	fd, err := unix.Openat(at, path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// count adds n to the number of our sessions in a directory.
func (h *Host) count(parent string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made == nil {
		h.made = map[string]int{}
	}
	h.made[parent] += n
}

// ours is how many of our sessions are in a directory.
func (h *Host) ours(parent string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.made[parent]
}
