package proctree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
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

// Usable returns nil, or why no session is possible: that needs a /proc of this process's own pid namespace. With the
// /proc of another one, strangers would be taken for processes of the session and killed.
func Usable() error {
	if self, _ := os.Readlink("/proc/self"); self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("no cgroup is writable, and /proc is not mounted or of another pid namespace: %w",
			procs.ErrNotSupported)
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

// Locks returns the descriptors that must stay open as long as the session may be alive.
func (s *Session) Locks() []int { return []int{s.lock} }

// NewGroup adds a group. Processes of unknown origin belong to the first group.
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

// Report makes all groups tell a guard which processes are started in them.
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

// Remove kills what is left. After an error, some processes may be alive.
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

// lockRunID takes the user's lock on a run id where no directory stands for the
// session: two runs with one id have the same marks, and would end each other. It
// is an abstract socket address (unix(7)), which is free again once the last
// process that has it is gone, and leaves nothing behind. The guard has it too.
func lockRunID(runID string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("lock run id: %w", err)
	}
	sum := sha256.Sum256([]byte(runID)) // an address is shorter than a run id may be
	address := &unix.SockaddrUnix{Name: fmt.Sprintf("@assay-run/%d/%x", os.Getuid(), sum[:16])}
	for end := time.Now().Add(procs.LockWait); ; time.Sleep(procs.LockLook) {
		err = unix.Bind(fd, address)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
			break
		}
	}
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.EADDRINUSE):
		err = procs.ErrInUse
	default:
		err = fmt.Errorf("lock run id: %w", err)
	}
	unix.Close(fd)
	return -1, err
}

// Look is how often the guard scans for new descendants. Most are found by their marks instead. The
// guard misses only a process that removed all its marks and lost its parent within this time before
// the runner was killed.
const Look = 50 * time.Millisecond

// Ward is the session as its guard knows it.
type Ward struct {
	group *Group
	// helper tells a helper of the runner's, by its pid, from an adopted orphan.
	helper func(pid int) bool
}

const argTree = "tree:"

// GuardArgs are the arguments from which NewWard makes the session's ward.
func (s *Session) GuardArgs() ([]string, error) {
	self, ok := procs.Read(os.Getpid())
	if !ok {
		return nil, errors.New("/proc has no entry for this process")
	}
	return []string{fmt.Sprintf("%s%d/%d/%d/%s", argTree, self.PID, self.SID, self.Start, s.marker)}, nil
}

// IsWard reports whether a guard's arguments are those of GuardArgs.
func IsWard(args []string) bool { return len(args) == 1 && strings.HasPrefix(args[0], argTree) }

// NewWard takes a guard's arguments; false when they are of another kind.
func NewWard(args []string, helper func(pid int) bool) (*Ward, bool) {
	if !IsWard(args) {
		return nil, false
	}
	f := strings.SplitN(strings.TrimPrefix(args[0], argTree), "/", 4)
	if len(f) != 4 {
		return nil, false
	}
	var runner procs.Stat
	if n, _ := fmt.Sscan(strings.Join(f[:3], " "), &runner.PID, &runner.SID, &runner.Start); n != 3 {
		return nil, false
	}
	return &Ward{group: newGroup(f[3], runner), helper: helper}, true
}

// Hear takes a line from the runner, which may be empty, and scans for new members.
func (w *Ward) Hear(line []byte) {
	var pid int
	var start uint64
	if n, _ := fmt.Sscanf(string(line), "p %d %d", &pid, &start); n == 2 {
		w.group.known[pid] = start
	}
	w.group.scan(func(st procs.Stat) bool { return st.PPID == w.group.runner.PID && !w.helper(st.PID) })
}

// End scans and kills until it finds nobody.
func (w *Ward) End(last func()) error {
	defer last()
	list := func() []int { return w.group.scan(func(procs.Stat) bool { return false }) }
	return procs.Wait(context.Background(), func() []int {
		_ = procs.Signal(list, unix.SIGKILL)
		return list()
	})
}

// Leave does nothing: the guard is in no cgroup of its own.
func (w *Ward) Leave() {}
