package dirs

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Session is the directories of one run.
type Session struct {
	host       *Host
	runID      string
	unenforced []string
	dirs       []dir         // the session directories, the primary first
	mount      string        // of the primary's hierarchy
	containers dir           // below the primary
	untouched  unix.Timespec // when containers was made
	outskirts  outskirts
	locks      []int // one per dir: free when runner and guard are dead
	viaShim    bool  // the v1 pids limit is exact only if nothing of ours is counted
	undo       func()

	// pidsFloor is the pids peak up to which our own tasks may have been counted.
	pidsFloor atomic.Int64

	mu     sync.Mutex
	groups []*Group
	seen   map[int]string // by hierarchy: the kernel's path of the session's directory, once known
}

// NewSession makes the session's directories and sets the limits. The error
// may be a *LimitError or wrap procs.ErrInUse.
func (h *Host) NewSession(runID string, l Limits) (_ *Session, err error) {
	s := &Session{host: h, runID: runID, seen: map[int]string{}}
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
		d, err := s.make(p, l)
		if err != nil {
			return nil, err
		}
		s.dirs = append(s.dirs, d)
		if err := p.limit(d.path, l); err != nil {
			return nil, err
		}
	}
	s.mount = places[0].h.mount
	s.outskirts = h.outskirts(below(s.mount, s.Path()), s.dirs)
	if l.Containers {
		s.claimOutskirts()
	}
	return s, s.makeContainers()
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
		d.path, d.slice = filepath.Join(d.path, name), false
		if err := makeDir(d.path); err != nil {
			return nil, errors.Join(err, remove(g.dirs))
		}
		g.dirs = append(g.dirs, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) == 0 { // the agent's
		g.containers = []dir{s.containers}
		g.warm()
	}
	s.groups = append(s.groups, g)
	return g, nil
}

func (s *Session) groupList() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.groups)
}

// Frozen reports whether what is started in the session is frozen (cgroups.rst, freezer-subsystem.rst).
func (s *Session) Frozen() bool {
	for _, d := range s.dirs {
		switch {
		case d.v2:
			if events, _ := procs.ReadFile(filepath.Join(d.path, "cgroup.events")); bytes.Contains(events, []byte("frozen 1")) {
				return true
			}
		case d.freezer:
			if state, _ := procs.ReadFile(filepath.Join(d.path, "freezer.state")); bytes.HasPrefix(state, []byte("FR")) {
				return true // FREEZING or FROZEN
			}
		}
	}
	return false
}

// Kill ends every process of the session.
func (s *Session) Kill() error { return kill(s.dirs) }

// Remove kills what is left and removes the session from every hierarchy, with
// all cgroups that were made inside. It returns when they are gone, and may be
// called again after an error.
func (s *Session) Remove() error {
	for _, g := range s.groupList() {
		g.settle()
	}
	if !s.removeGroups() && !empty(s.dirs) {
		s.NoContainers()
		_ = kill(s.dirs)
	}
	if err := remove(slices.Concat(s.dirs, s.outskirts.dirs)); err != nil {
		return err
	}
	for _, fd := range s.locks {
		unix.Close(fd)
	}
	s.locks = nil
	for _, d := range s.dirs {
		if !d.slice {
			s.host.count(filepath.Dir(d.path), -1)
		}
	}
	removeParents(s.dirs, s.outskirts.above)
	if s.undo != nil {
		s.undo()
		s.undo = nil
	}
	return nil
}

// removeParents removes the directories of all sessions, which fails while another
// is there, as it should. A slice has no such directory.
func removeParents(dirs []dir, above []string) {
	for i, d := range dirs {
		if d.slice {
			continue
		}
		if err := unix.Rmdir(filepath.Dir(d.path)); i == 0 && err == nil {
			defer tidy(above)
		}
	}
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
	err := unix.Rmdir(s.containers.path)
	return done && (err == nil || errors.Is(err, fs.ErrNotExist))
}
