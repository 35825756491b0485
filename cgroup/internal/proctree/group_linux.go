package proctree

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Group is the processes of one group.
//
// A member is known by descent from a known member, by the marker in its
// environment, by the limit that marks the run (see limitMark), or by the
// session id of a known member. A child of the runner that is none of these
// and in a session of its own was adopted: see heir.
type Group struct {
	marker []byte
	mark   uint64     // see limitMark
	runner procs.Stat // as it was when the group was made: it may be gone
	order  int        // of its session: the agent's is the first

	// All below is guarded by forest.
	open      bool           // something was started in it, and it was not seen to be empty since
	condemned map[int]uint64 // once it was killed: those that were, pid -> start time
	started   map[int]bool   // pids that belong to an exec.Cmd: never reaped here
	known     map[int]uint64 // live members: pid -> start time
	sids      map[int]bool   // sessions (setsid) of members, the runner's excluded
	foreign   map[int]uint64 // looked at and found not to be members
	guard     io.Writer      // is told whom Start started; nil without a guard
}

// forest is the live groups of this process.
var forest struct {
	sync.Mutex
	groups map[*Group]bool
}

// heir tells whether orphans that nothing tells about are the group's: it is the
// first of the session's groups that has members, and no other session has any.
func (g *Group) heir() bool {
	for other := range forest.groups {
		if other != g && other.open && (other.order < g.order || !bytes.Equal(other.marker, g.marker)) {
			return false
		}
	}
	return true
}

// newGroup is a group of this process or, in the guard, of the runner.
func newGroup(marker string, runner procs.Stat) *Group {
	return &Group{
		marker: []byte(marker), mark: limitMark(marker), runner: runner,
		started: map[int]bool{}, known: map[int]uint64{}, sids: map[int]bool{}, foreign: map[int]uint64{},
	}
}

// this is the calling process.
func this() procs.Stat {
	self, ok := procs.Read(os.Getpid())
	if !ok {
		self = procs.Stat{PID: os.Getpid(), Start: math.MaxUint64} // without /proc there is no scan either
	}
	return self
}

// Path is empty: there is no directory.
func (g *Group) Path() string { return "" }

// ID is 0: there is no cgroup.
func (g *Group) ID() uint64 { return 0 }

// List returns the pids of the live members.
func (g *Group) List() ([]int, error) { return g.list(), nil }

// Signal sends a signal to every member, also to those forked meanwhile.
func (g *Group) Signal(sig unix.Signal) error { return procs.Signal(g.list, sig) }

// Freeze stops every member, or lets them go on, which their parents see.
func (g *Group) Freeze(on bool) error {
	if on {
		return g.Signal(unix.SIGSTOP)
	}
	return g.Signal(unix.SIGCONT)
}

// Start starts a command in the group. The command gets a session of its own
// unless it asks for one, or for a process group, itself.
func (g *Group) Start(cmd *exec.Cmd, by procs.Starter) error {
	attr, restore := procs.Attributes(cmd)
	defer restore()
	if !attr.Setpgid {
		attr.Setsid = true
	}
	forest.Lock() // nobody looks between the fork and the entry here
	defer forest.Unlock()
	if err := withMark(g.mark, func() error { return by.Fork(cmd) }); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	g.started[pid], g.open, g.condemned = true, true, nil
	if st, ok := procs.Read(pid); ok {
		g.known[pid] = st.Start
		if st.SID != g.runner.SID {
			g.sids[st.SID] = true
		}
		g.tell(pid)
	}
	return nil
}

// report makes the group tell a guard of its processes.
func (g *Group) report(guard io.Writer) {
	forest.Lock()
	defer forest.Unlock()
	g.guard = guard
	for pid := range g.known {
		g.tell(pid)
	}
}

// tell is best effort: a guard that is gone is no reason not to run.
func (g *Group) tell(pid int) {
	if g.guard != nil {
		fmt.Fprintf(g.guard, "p %d %d\n", pid, g.known[pid])
	}
}

// occupied tells whether something was started that was not seen to be gone.
func (g *Group) occupied() bool {
	forest.Lock()
	defer forest.Unlock()
	return g.open
}

// forget ends the group's part in telling whose a process is.
func (g *Group) forget() {
	forest.Lock()
	defer forest.Unlock()
	delete(forest.groups, g)
}
