package proctree

import (
	"errors"
	"os"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// children asks the kernel whether this process has any child, by waitid(2),
// which leaves everything as it is: unlike a look through /proc, nothing that
// forks meanwhile is missed. dead is a child that has ended, or 0.
func children() (dead int, any bool) {
	var info struct {
		signo, errno, code int32
		child              struct {
			_   [0]uintptr
			pid int32
		}
		_ [128]byte
	}
	for {
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return int(info.child.pid), !errors.Is(err, unix.ECHILD)
		}
	}
}

// ours tells whether a child of this process is, or was, of a session: it is no
// helper, no other's command, and not what this program started by itself, which
// is in this program's own session.
func (g *Group) ours(st procs.Stat) bool {
	if st.PPID != os.Getpid() || helpers.pids[st.PID] {
		return false
	}
	_, known := g.known[st.PID]
	return known || st.SID != g.runner.SID
}

// reap reaps a dead child unless its exit status is for somebody else.
func (g *Group) reap(pid int) bool {
	st, ok := procs.Read(pid)
	if !ok || !g.ours(st) || startedByUs(pid) {
		return false
	}
	got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid
}

// settled tells whether nothing of the group is alive once a look has found
// nobody. What is alive is a child of this process, its subreaper, or descends
// from one: so there is none for certain when this process has no child left.
// Where it has others, such as a job's leader, the look through /proc decides.
func (g *Group) settled() bool {
	forest.Lock()
	defer forest.Unlock()
	if !g.heir() {
		return true // what nobody knows is for another to wait for
	}
	for range maxReaped {
		dead, any := children()
		if !any {
			return true
		}
		helpers.Lock()
		reaped := dead != 0 && g.reap(dead)
		helpers.Unlock()
		if !reaped {
			return g.others()
		}
	}
	return false
}

const maxReaped = 10_000

// others tells whether this process has children, and none of them is the group's.
func (g *Group) others() bool {
	helpers.Lock()
	defer helpers.Unlock()
	found := false
	for _, st := range procs.All() {
		if st.PPID != os.Getpid() {
			continue
		}
		if found = true; g.ours(st) && !startedByUs(st.PID) {
			return false
		}
	}
	return found
}

// Elsewhere runs f, which starts a process and waits for it, so that what that
// process leaves behind is no child of this one: only then can this process ever
// be without children. False: other sessions are here, whose orphans would be
// lost, or orphans have nowhere else to go.
func Elsewhere(f func(*exec.Cmd) error, cmd *exec.Cmd) (bool, error) {
	forest.Lock()
	defer forest.Unlock()
	if os.Getpid() == 1 {
		return false, nil
	}
	for g := range forest.groups {
		if g.open {
			return false, nil
		}
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }()
	return true, f(cmd)
}
