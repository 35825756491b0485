package proctree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Look is how often the guard looks for new descendants. Most are found
// without, by their marks; one that removed all of them, and lost its parent,
// within that time just before the runner is killed is not.
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

// IsWard tells whether a guard's arguments are those of GuardArgs.
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

// Hear takes a line of the runner's, which may be nothing, and looks.
func (w *Ward) Hear(line []byte) {
	var pid int
	var start uint64
	if n, _ := fmt.Sscanf(string(line), "p %d %d", &pid, &start); n == 2 {
		w.group.known[pid] = start
	}
	w.group.scan(func(st procs.Stat) bool { return st.PPID == w.group.runner.PID && !w.helper(st.PID) })
}

// End looks and kills until nobody is found.
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
