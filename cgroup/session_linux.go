package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const parentName = "assay-run"

// Session is one run's processes.
type Session struct {
	host       *Host
	runID      string
	limits     Limits
	unenforced []string
	dirs       []dir // the session directories, the primary first; nil in mode None
	locks      []int // one per dir, or one in mode None: free when runner and guard are dead
	viaShim    bool  // the v1 pids limit is exact only if nothing of ours is counted
	agent      *Group
	undo       func()
	reaper     *reaper // nil where orphans go elsewhere

	// pidsFloor is the pids peak up to which our own tasks may have been counted.
	pidsFloor atomic.Int64

	mu      sync.Mutex
	groups  []*Group
	guard   *Guard
	removed bool
}

// NewSession creates a session with its agent group. The errors to tell apart
// are *LimitError and ErrInUse. The run id becomes a directory name; the
// caller has validated it.
func (h *Host) NewSession(runID string, l Limits) (_ *Session, err error) {
	if runID == "" || runID == "." || runID == ".." || strings.ContainsAny(runID, "/\x00\n") {
		return nil, fmt.Errorf("create session: invalid run id %q", runID)
	}
	if err := h.Usable(); err != nil {
		return nil, fmt.Errorf("create session %s: %w", runID, err)
	}
	s := &Session{host: h, runID: runID, limits: l}
	places, err := s.plan()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Remove()
		}
	}()
	if h.mode == None {
		becomeSubreaper()
		lock, err := lockRunID(runID)
		if err != nil {
			return nil, fmt.Errorf("create session %s: %w", runID, err)
		}
		s.locks = append(s.locks, lock)
	}
	if s.undo, err = h.prepare(places); err != nil {
		return nil, fmt.Errorf("create session %s: %w", runID, err)
	}
	for _, p := range places {
		if err := s.create(p); err != nil {
			return nil, fmt.Errorf("create session %s: %w", runID, err)
		}
		if err := p.limit(s.dirs[len(s.dirs)-1].path, s.limits); err != nil {
			return nil, fmt.Errorf("create session %s: %w", runID, err)
		}
	}
	if s.agent, err = s.NewGroup("agent"); err != nil {
		return nil, err
	}
	s.agent.warm()
	if h.needsReaper() {
		s.reaper = newReaper(s)
	}
	return s, nil
}

// Agent is the group of the command of the run.
func (s *Session) Agent() *Group { return s.agent }

// RunID is the id that the session was created with.
func (s *Session) RunID() string { return s.runID }

// Path is the session's directory on the primary hierarchy, "" in mode None.
func (s *Session) Path() string {
	if len(s.dirs) == 0 {
		return ""
	}
	return s.dirs[0].path
}

// Unenforced names the limits (memory, pids, cpu) that are not enforced, which
// only Limits.BestEffort allows.
func (s *Session) Unenforced() []string { return slices.Clone(s.unenforced) }

// NewGroup adds a group beside the agent's, under the same limits. The name
// becomes a directory name.
func (s *Session) NewGroup(name string) (*Group, error) {
	if name == "" || name[0] == '.' || strings.ContainsAny(name, "/\x00\n") {
		return nil, fmt.Errorf("create group: invalid name %q", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil, fmt.Errorf("create group %s: session %s is removed", name, s.runID)
	}
	g := &Group{session: s, name: name}
	if len(s.dirs) == 0 {
		g.tree = newTree(s.runID, len(s.groups) == 0)
		if s.guard != nil {
			g.tree.report(s.guard.pipe)
		}
	}
	for _, d := range s.dirs {
		d.path = filepath.Join(d.path, name)
		if err := os.Mkdir(d.path, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("create group %s: %w", name, err), remove(g.dirs))
		}
		g.dirs = append(g.dirs, d)
	}
	s.groups = append(s.groups, g)
	return g, nil
}

// Remove kills what is left in the session and removes it from every
// hierarchy, with all cgroups that were made inside. It returns when they are
// gone. Removing twice is no error.
func (s *Session) Remove() error {
	if s.reaper != nil {
		s.reaper.stop() // it needs mu
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil
	}
	for _, g := range s.groups {
		g.settle()
	}
	if len(s.dirs) == 0 {
		for _, g := range s.groups {
			if err := g.Kill(); err != nil {
				return fmt.Errorf("remove session %s: %w", s.runID, err)
			}
			g.tree.forget()
		}
	} else if !s.removeGroups() && !empty(s.dirs) {
		_ = kill(s.dirs)
	}
	if err := remove(s.dirs); err != nil {
		return fmt.Errorf("remove session %s: %w", s.runID, err)
	}
	for _, fd := range s.locks {
		unix.Close(fd)
	}
	for _, d := range s.dirs {
		// Another session may be there: then this fails, as it should.
		_ = unix.Rmdir(filepath.Dir(d.path))
	}
	s.removed, s.locks = true, nil
	if s.undo != nil {
		s.undo()
	}
	return nil
}

// removeGroups removes the groups' directories if they are empty, as they are
// at the end of nearly every run, and tells whether they were.
func (s *Session) removeGroups() bool {
	done := true
	for _, g := range s.groups {
		for _, d := range g.dirs {
			err := unix.Rmdir(d.path)
			done = done && (err == nil || errors.Is(err, fs.ErrNotExist))
		}
	}
	return done
}

// create makes the session directory in one place and locks it. The lock is
// what tells a live session from a stale one (see Sweep): it goes with the
// runner and the guard, however they end. A guard at work would not tell
// another run's session under the same id from its own.
func (s *Session) create(p place) error {
	parent := filepath.Join(p.base, parentName)
	path := filepath.Join(parent, s.runID)
	end := time.Now().Add(lockWait)
	for range 100 {
		fd, err := p.open(parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by a session that just ended
		} else if err != nil {
			return err
		}
		// In the very directory that is locked, which may be another by now.
		err = unix.Mkdirat(fd, s.runID, 0o755)
		var lock int
		if err == nil {
			lock, err = lockDir(path)
		}
		unix.Close(fd)
		switch {
		case err == nil:
			s.dirs = append(s.dirs, dir{path: path, v2: p.h.v2, freezer: !p.h.v2 && p.h.has("freezer")})
			s.locks = append(s.locks, lock)
			return nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		case errors.Is(err, fs.ErrExist):
			if lock, err := lockDir(path); err == nil {
				err = sweepDir(dir{path: path, v2: p.h.v2, freezer: p.h.has("freezer")})
				unix.Close(lock)
				if err != nil {
					return err
				}
			} else if errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end) {
				time.Sleep(lockLook)
			} else if errors.Is(err, unix.EWOULDBLOCK) {
				return fmt.Errorf("cgroup %s: %w", path, ErrInUse)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		default:
			return &os.PathError{Op: "create cgroup", Path: path, Err: err}
		}
	}
	return fmt.Errorf("cgroup %s keeps being removed by somebody else", parent)
}

// open makes, opens and share-locks the parent of the sessions, which keeps
// sweepers off a session between its creation and its lock.
func (p place) open(parent string) (int, error) {
	if err := unix.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, &os.PathError{Op: "create cgroup", Path: parent, Err: err}
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
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		// It may have been removed, and unlocked, after it was opened.
		var opened, there unix.Stat_t
		if err = errors.Join(unix.Fstat(fd, &opened), unix.Stat(path, &there)); err == nil && opened.Ino != there.Ino {
			err = unix.ENOENT
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
