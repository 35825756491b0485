package helper

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/proctree"
	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/assay-run/assay-run/cgroup/steps"
)

// ward is a session as its guard knows it.
type ward interface {
	// End kills the processes, and removes what held them together.
	// It calls last between the two.
	End(last func()) error
	// Leave removes the guard's own cgroup, as the last step of the guard.
	Leave()
}

// guardMain is the guard process; see cgroup.Session.Guard. Its arguments are
// role.Name, role.Guard, the run id, and what the session's backend makes its ward of.
func guardMain(args []string) int {
	ignoreSignals()
	if len(args) < 4 {
		return 125
	}
	conceal()
	unix.Close(guardUp) // the command starts
	left := inheritance{tty: terminal{fd: 4}}
	every, hear := time.Duration(-1), left.hear
	var w ward = dirs.NewWard(args[3:])
	if tree, ok := proctree.NewWard(args[3:], isHelper); ok {
		w, every = tree, proctree.Look
		hear = func(line []byte) { left.hear(line); tree.Hear(line) }
	}
	if released(guardPipe, every, hear) {
		return 0
	}
	left.tty.restore() // before the shell, which also learns of the runner's end, reads the settings
	defer left.become()
	defer w.Leave()
	defer left.remove() // when no process is left that could create something in its place
	if w.End(left.last) != nil {
		return 1
	}
	return 0
}

// Descriptors of a guard: its pipe from the runner, and what it closes once it is up.
const (
	guardPipe = 3
	guardUp   = 5
)

// conceal makes this process not dumpable: its memory, descriptors and environment
// are then out of reach for processes of the same user, see
// PR_SET_DUMPABLE(2const) and ptrace(2). exec undoes it.
func conceal() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// released reads the pipe until the runner releases the guard or is gone, and reports whether it released the guard. It
// calls hear with each other line and, if there is an interval, with an empty line each time that passes.
func released(pipe int, every time.Duration, hear func(line []byte)) bool {
	buf := make([]byte, 4096)
	var said []byte // the part of a line that has come so far
	for {
		if every > 0 {
			fds := []unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, int(every/time.Millisecond))
			if n == 0 || errors.Is(err, unix.EINTR) {
				hear(nil)
				continue
			}
		}
		n, err := unix.Read(pipe, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			return false
		}
		said = append(said, buf[:n]...)
		for {
			line, rest, whole := bytes.Cut(said, []byte{'\n'})
			if !whole {
				break
			}
			if string(line) == "q" {
				return true
			}
			hear(line)
			said = rest
		}
	}
}

// isHelper reports whether a process is another session's guard or the leader of a job: these are children of
// the runner in sessions of their own as well.
func isHelper(pid int) bool {
	args := arguments(pid)
	return role.Guard.Is(args) || role.Job.Is(args)
}

// Descriptors that a waiter has in addition to a guard's.
const (
	waiterKill = 6 // the session's cgroup.kill
	waiterList = 7 // closed before the first step
)

// await makes cmd, which would start a guard, start a waiter that becomes this guard. It
// changes nothing and returns nil where that is impossible. The files are the caller's to close.
func await(cmd *exec.Cmd, ward []string) []*os.File {
	if steps.Refused() {
		return nil
	}
	kill := dirs.KillFile(ward)
	if kill == nil {
		return nil
	}
	list, err := waiter().File()
	if err != nil {
		kill.Close()
		return nil
	}
	cmd.Args = steps.Args(waiterList, cmd.Args[1:]...)
	cmd.ExtraFiles[waiterKill-3], cmd.ExtraFiles[waiterList-3] = kill, list
	return []*os.File{kill, list}
}

// waiter is what a waiter does.
func waiter() *steps.List {
	const any = steps.AnyErrno
	l := steps.New()
	ignore := l.Bytes(append([]byte{1}, make([]byte, 31)...)) // struct sigaction: SIG_IGN, no flags, no mask
	for sig := unix.SIGHUP; sig <= unix.SIGTTOU; sig++ {
		if ignored>>sig&1 != 0 {
			l.Call(unix.SYS_RT_SIGACTION, sig, ignore, 0, 8).Ignore(any)
		}
	}
	l.Call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0).Ignore(any)
	// The command starts. The number stays taken: the guard closes it, whatever it is.
	l.Call(unix.SYS_DUP3, 0, guardUp, 0).Ignore(any)
	begin := l.Label()
	// struct pollfd, without events: it waits until the other end is closed.
	l.Call(unix.SYS_PPOLL, l.Word(guardPipe), 1, 0, 0, 8).On(begin, any)
	l.Call(unix.SYS_WRITE, waiterKill, "1", 1).Ignore(any)
	l.At(begin)
	l.Call(unix.SYS_CLOSE, waiterKill).Ignore(any)
	l.Program()
	return l
}

// roomIn is how many bytes a pipe that nobody reads takes for certain: a page may stay
// half empty, since what does not fit into its rest goes to the next one.
func roomIn(pipe *os.File) int {
	n, err := unix.FcntlInt(pipe.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return 0
	}
	return n/2 - len("q\n")
}
