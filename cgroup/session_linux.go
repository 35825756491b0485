package cgroup

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/cgroup/internal/helper"
)

// Session is one run's processes.
type Session struct {
	runID   string
	backend backend
	agent   *Group
	reaper  *helper.Reaper // nil where orphans go elsewhere

	mu      sync.Mutex
	guard   *helper.Guard // nil until Guard
	removed bool
}

func newSession(runID string, b backend) (_ *Session, err error) {
	s := &Session{runID: runID, backend: b}
	if s.agent, err = s.NewGroup("agent"); err != nil {
		_ = s.Remove()
		return nil, err
	}
	if b.Orphans() {
		s.reaper = helper.NewReaper(b.Reap)
	}
	return s, nil
}

// Agent is the group of the command of the run.
func (s *Session) Agent() *Group { return s.agent }

// RunID is the id that the session was created with.
func (s *Session) RunID() string { return s.runID }

// Path is the session's directory on the primary hierarchy, "" in mode None.
func (s *Session) Path() string { return s.backend.Path() }

// CgroupParent is where container engines on this host can put containers so that
// they are in the session: a path below the root of each hierarchy, "" in mode None.
// They belong to the agent's group.
func (s *Session) CgroupParent() string { return s.backend.CgroupParent() }

// Note keeps a text with the session, for the Sweep that finds it without a runner and a
// guard. There is one text.
func (s *Session) Note(text string) error { return s.backend.Note(text) }

// Apart reports whether containers there are outside of a cgroup v1 hierarchy's part
// of the session, which then neither limits nor counts them: the runner is in
// different cgroups on different hierarchies, and an engine takes one path for all.
func (s *Session) Apart() bool { return s.backend.Apart() }

// NoContainers makes the kernel refuse containers that are not there yet, on
// cgroup2, so that an engine does not start again what is ended.
func (s *Session) NoContainers() { s.backend.NoContainers() }

// Containers are the cgroups that engines made, as paths below CgroupParent.
func (s *Session) Containers() []string { return s.backend.Containers() }

// HadContainers reports whether engines have made any, which may have gone since.
func (s *Session) HadContainers() bool { return s.backend.HadContainers() }

// Unenforced names the limits (memory, pids, cpu) that are not enforced, which
// only Limits.BestEffort allows.
func (s *Session) Unenforced() []string { return s.backend.Unenforced() }

// Usage tells what the session consumed so far; read it before Remove.
func (s *Session) Usage() Usage { return s.backend.Usage() }

// Events tells how often limits struck so far; read it before Remove.
func (s *Session) Events() Events { return s.backend.Events() }

// Left reports whether a process that is moved to a cgroup of a v1 hierarchy leaves what the
// session limits or counts. It gets the hierarchy's number, the cgroup's id (its inode number) and
// its path as the kernel has it. It names the controllers, and reports whether the session has a
// limit of one of them. It is safe for concurrent use.
func (s *Session) Left(hierarchy int, id uint64, path string) (controllers string, limited, left bool) {
	return s.backend.Left(hierarchy, id, path)
}

// NewGroup adds a group beside the agent's, under the same limits. The name
// becomes a directory name.
func (s *Session) NewGroup(name string) (*Group, error) {
	if !validName(name) {
		return nil, fmt.Errorf("create group: invalid name %q", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil, fmt.Errorf("create group %s: session %s is removed", name, s.runID)
	}
	m, err := s.backend.NewGroup(name)
	if err != nil {
		return nil, fmt.Errorf("create group %s: %w", name, err)
	}
	return &Group{session: s, name: name, members: m}, nil
}

// validName reports whether a group may have the name, which becomes a directory's.
func validName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00\n")
}

// Guard starts the session's guard: a process in a session of its own, in the
// runner's cgroup or one of its own, with /dev/null for stdio, that
// holds nothing of the runner's but the read end of a pipe, a terminal, if that is not
// nil, and the session's locks: until it is done, the run id is in use. When the
// pipe closes because the runner is gone, it restores the terminal (see
// TerminalChanged), kills the session, waits until it is empty and removes it. Start it
// before the command: once Guard returns, the session cannot outlive the runner.
//
// The guard is not dumpable by the time that Start starts a command: one of the same
// user can kill it, but not look into it or change it.
//
// SIGINT, SIGTERM, SIGHUP and the terminal's other signals do not touch it. Without a
// terminal, and where there is cgroup.kill, Go starts in it only when the runner is gone. The
// error may wrap ErrNoHelper.
func (s *Session) Guard(terminal *os.File) (*Guard, error) {
	args, locks, own, err := s.backend.Ward()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	g, err := helper.StartGuard(s.runID, args, terminal, locks, own)
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	s.backend.Report(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = g
	return &Guard{g}, nil
}

// concealed waits until the guard, if there is one, is out of a command's reach.
func (s *Session) concealed() {
	s.mu.Lock()
	g := s.guard
	s.mu.Unlock()
	if g != nil {
		g.Concealed()
	}
}

// Frozen reports whether somebody froze the session's cgroup or one above. A command that is started there
// then does not run, and Start does not return.
func (s *Session) Frozen() bool { return s.backend.Frozen() }

// Kill ends every process of the session with SIGKILL, in whatever group and state. It does not wait
// until they are gone.
func (s *Session) Kill() error { return s.backend.Kill() }

// Remove kills what is left in the session and removes it from every
// hierarchy, with all cgroups that were made inside. It returns when they are
// gone. Removing twice is no error.
func (s *Session) Remove() error {
	if s.reaper != nil {
		s.reaper.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil
	}
	if err := s.backend.Remove(); err != nil {
		return fmt.Errorf("remove session %s: %w", s.runID, err)
	}
	s.removed = true
	return nil
}
