package helper

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/steps"
)

// Descriptors that a waiter has besides a guard's.
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
