package proctree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Session is the groups of one run.
type Session struct {
	marker string
	lock   int // free when runner and guard are dead

	mu     sync.Mutex
	groups []*Group
	guard  io.Writer
}

// Usable is nil, or tells why no session can be held together: that takes a
// /proc with this process's own pids. By the one of another pid namespace,
// strangers would be taken for the session's and killed.
func Usable() error {
	if self, _ := os.Readlink("/proc/self"); self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("no cgroup is writable, and /proc is not mounted or of another pid namespace: %w", procs.ErrNotSupported)
	}
	return nil
}

// NewSession makes this process the subreaper of its descendants. Members are
// started with key=runID in their environment. The error may wrap procs.ErrInUse.
func NewSession(runID, key string) (*Session, error) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	lock, err := lockRunID(runID)
	if err != nil {
		return nil, err
	}
	return &Session{marker: key + "=" + runID, lock: lock}, nil
}

// Locks are descriptors to hold as long as the session may be alive.
func (s *Session) Locks() []int { return []int{s.lock} }

// NewGroup adds a group. What nothing else tells about is the first one's.
func (s *Session) NewGroup() *Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := newGroup(s.marker, this())
	g.order = len(s.groups)
	forest.Lock()
	if forest.groups == nil {
		forest.groups = map[*Group]bool{}
	}
	forest.groups[g] = true
	forest.Unlock()
	if s.guard != nil {
		g.report(s.guard)
	}
	s.groups = append(s.groups, g)
	return g
}

func (s *Session) groupList() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.groups)
}

// Report makes all groups tell a guard of what is started in them.
func (s *Session) Report(guard io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = guard
	for _, g := range s.groups {
		g.report(guard)
	}
}

// Reap reaps the dead members that this process has adopted.
func (s *Session) Reap() {
	for _, g := range s.groupList() {
		g.list() // which reaps
	}
}

// Kill ends every process of the session.
func (s *Session) Kill() error {
	var errs []error
	for _, g := range s.groupList() {
		errs = append(errs, g.Kill())
	}
	return errors.Join(errs...)
}

// removeTime bounds how long Remove waits for what it kills.
const removeTime = 2 * time.Second

// Remove kills what is left. The error tells that some of it may be alive.
func (s *Session) Remove() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	for _, g := range s.groupList() {
		if !g.occupied() {
			continue
		}
		_ = g.Kill()
		if g.Wait(ctx) != nil {
			err = errors.New("processes of the session could not be ended")
		}
	}
	for _, g := range s.groupList() {
		g.forget()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = nil
	if s.lock >= 0 {
		unix.Close(s.lock)
		s.lock = -1
	}
	return err
}
