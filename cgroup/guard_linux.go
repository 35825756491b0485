package cgroup

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/helper"
	"github.com/assay-run/assay-run/cgroup/role"
)

// Guard is the runner's handle of a session's guard process.
type Guard struct {
	helper *helper.Guard
}

// PID is the guard's process id, 0 where this process is process 1 and no cgroup
// is writable: nothing outlives it then, and there is no guard.
func (g *Guard) PID() int { return g.helper.PID() }

// Release tells the guard to go, after Remove. It waits for it only where the
// guard has a cgroup of its own, which goes after it.
func (g *Guard) Release() error { return g.helper.Release() }

// Leave lets the guard do what it does when the runner vanishes: it ends what is
// alive in the session, however long that takes. It is for when Remove failed.
func (g *Guard) Leave() { g.helper.Leave() }

// Exposed reports whether the guard was not concealed in time when a command was
// started: it was stopped, or the host was very busy. Processes of the same user
// could then look into it, or change it, until it was.
func (g *Guard) Exposed() bool { return g.helper.Exposed() }

// TerminalChanged tells the guard that the terminal it was started with is about
// to get settings that are not its own, and which are: should the runner vanish,
// the guard puts own back, unless somebody else has changed them by then. With
// nil for both the terminal has its own settings again. Best effort: a guard
// that is gone is no reason not to run.
func (g *Guard) TerminalChanged(set, own *unix.Termios) { g.helper.TerminalChanged(set, own) }

// Inherit names a directory that the guard removes with all that is in it if the runner vanishes,
// and then the directory above if that is empty. Best effort, as [Guard.TerminalChanged] is.
func (g *Guard) Inherit(dir string) { g.helper.Inherit(dir) }

// Then tells the guard what to become, of this program, once it has ended what a
// vanished runner left: somebody else's role with more to clear up.
func (g *Guard) Then(argv ...string) { g.helper.Then(argv...) }

// Last tells the guard what to run, of this program, should the runner vanish: when
// every process of the session has ended and before the session is removed. The
// guard waits for it.
func (g *Guard) Last(argv ...string) { g.helper.Last(argv...) }

// IsShim reports whether argv is that of the program by which [Group.Start] puts
// a command into a cgroup where clone cannot, and which then becomes the command.
// It does not tell whose program it is: compare the executable.
func IsShim(argv []string) bool { return role.Join.Is(argv) }

// Conceal makes this process not dumpable from here on: its memory, descriptors
// and environment are then out of reach for other processes of the same user,
// unless they have CAP_SYS_PTRACE. What it executes is dumpable again. Core dumps and
// debuggers are ruled out too. The error wraps what prctl(2) says.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make this process not dumpable: %w", err)
	}
	return nil
}
