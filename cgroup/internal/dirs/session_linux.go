package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Session is the directories of one run.
type Session struct {
	host       *Host
	runID      string
	unenforced []string
	dirs       []dir // the session directories, the primary first
	locks      []int // one per dir: free when runner and guard are dead
	viaShim    bool  // the v1 pids limit is exact only if nothing of ours is counted
	undo       func()

	// pidsFloor is the pids peak up to which our own tasks may have been counted.
	pidsFloor atomic.Int64

	mu     sync.Mutex
	groups []*Group
}

// NewSession makes the session's directories and sets the limits. The error
// may be a *LimitError or wrap procs.ErrInUse.
func (h *Host) NewSession(runID string, l Limits) (_ *Session, err error) {
	s := &Session{host: h, runID: runID}
	places, err := s.plan(l)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Remove()
		}
	}()
	if s.undo, err = h.prepare(places); err != nil {
		return nil, err
	}
	for _, p := range places {
		if err := s.create(p); err != nil {
			return nil, err
		}
		if err := p.limit(s.dirs[len(s.dirs)-1].path, l); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Path is the session's directory on the primary hierarchy.
func (s *Session) Path() string { return s.dirs[0].path }

// Locks are descriptors to hold as long as the session may be alive.
func (s *Session) Locks() []int { return slices.Clone(s.locks) }

// Unenforced names the limits that are not enforced.
func (s *Session) Unenforced() []string { return slices.Clone(s.unenforced) }

// NewGroup makes a group's directories.
func (s *Session) NewGroup(name string) (*Group, error) {
	g := &Group{session: s, name: name}
	for _, d := range s.dirs {
		d.path = filepath.Join(d.path, name)
		if err := os.Mkdir(d.path, 0o755); err != nil {
			return nil, errors.Join(err, remove(g.dirs))
		}
		g.dirs = append(g.dirs, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) == 0 {
		g.warm() // the agent's
	}
	s.groups = append(s.groups, g)
	return g, nil
}

func (s *Session) groupList() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.groups)
}

// Remove kills what is left and removes the session from every hierarchy, with
// all cgroups that were made inside. It returns when they are gone, and may be
// called again after an error.
func (s *Session) Remove() error {
	for _, g := range s.groupList() {
		g.settle()
	}
	if !s.removeGroups() && !empty(s.dirs) {
		_ = kill(s.dirs)
	}
	if err := remove(s.dirs); err != nil {
		return err
	}
	for _, fd := range s.locks {
		unix.Close(fd)
	}
	s.locks = nil
	for _, d := range s.dirs {
		// Another session may be there: then this fails, as it should.
		_ = unix.Rmdir(filepath.Dir(d.path))
	}
	if s.undo != nil {
		s.undo()
		s.undo = nil
	}
	return nil
}

// removeGroups removes the groups' directories if they are empty, as they are
// at the end of nearly every run, and tells whether they were.
func (s *Session) removeGroups() bool {
	done := true
	for _, g := range s.groupList() {
		for _, d := range g.dirs {
			err := unix.Rmdir(d.path)
			done = done && (err == nil || errors.Is(err, fs.ErrNotExist))
		}
	}
	return done
}
