package helper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/proctree"
	"github.com/assay-run/assay-run/cgroup/role"
)

// Leader is the parent of a job: see cgroup.Job. It ends when the runner ends, because they share a socket.
type Leader struct {
	process *exec.Cmd
	conn    *os.File
	once    sync.Once
}

// ErrLeaderGone is cgroup.ErrLeaderGone.
var ErrLeaderGone = errors.New("the leader of the command's terminal session is gone")

// Wait returns the next change of the command's state, as wait4(2) with
// WUNTRACED and WCONTINUED; the last change is how it ended. The error is
// ErrLeaderGone. Only one goroutine may wait at a time.
func (l *Leader) Wait() (unix.WaitStatus, error) {
	kind, value, err := readReport(l.conn)
	if err != nil || kind != reportStatus {
		return 0, ErrLeaderGone
	}
	return unix.WaitStatus(value), nil
}

// Close ends the leader and waits for it. This hangs up the terminal for the processes that are left in its session.
// Later calls do nothing.
func (l *Leader) Close() {
	l.once.Do(func() {
		if l.process != nil {
			l.conn.Close()
			proctree.WaitHelper(l.process)
		}
	})
}

// The leader reports to the runner in pairs of these and a value.
const (
	reportStarted = iota + 1 // the command's pid
	reportFailed             // the errno of its start
	reportStatus             // a wait status
)

func readReport(r io.Reader) (kind, value uint32, err error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, err
	}
	return binary.NativeEndian.Uint32(b[:4]), binary.NativeEndian.Uint32(b[4:]), nil
}

// Fork forks cmd from the leader, from a thread that is in the v1 directories of
// join meanwhile and goes home after. The leader's argument vector is: name,
// role.Job, the number of its first descriptor and how many there are of a
// cgroup's directory (0 or 1), files to join and files to go home, path, argv...;
// before these, the first descriptor is the socket.
func (l *Leader) Fork(cmd *exec.Cmd, join, home []string) (err error) {
	if err := available(); err != nil {
		return err
	}
	if cmd.Err != nil {
		return cmd.Err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket pair: %w", err)
	}
	l.conn = os.NewFile(uintptr(pair[0]), "leader")
	theirs := []*os.File{os.NewFile(uintptr(pair[1]), "runner")}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	dirs := 0
	if attr := cmd.SysProcAttr; attr != nil && attr.UseCgroupFD {
		fd, err := unix.FcntlInt(uintptr(attr.CgroupFD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("cgroup directory: %w", err)
		}
		theirs, dirs = append(theirs, os.NewFile(uintptr(fd), "cgroup")), 1
	}
	for _, file := range slices.Concat(join, home) {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		theirs = append(theirs, f)
	}
	passed, closePassed, err := inherited(cmd.ExtraFiles)
	if err != nil {
		return err
	}
	defer closePassed()
	argv := cmd.Args
	if len(argv) == 0 {
		argv = []string{cmd.Path}
	}
	args := role.Job.Args()
	for _, n := range []int{3 + len(passed), dirs, len(join), len(home)} {
		args = append(args, strconv.Itoa(n))
	}
	leader := &exec.Cmd{
		Path: "/proc/self/exe", Args: append(append(args, cmd.Path), argv...), Env: cmd.Env, Dir: cmd.Dir,
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: append(passed, theirs...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}
	if err := proctree.StartHelper(leader); err != nil {
		return err
	}
	l.process = leader
	theirs[0].Close() // so that the socket closes when the leader ends
	kind, value, err := readReport(l.conn)
	switch {
	case err != nil:
		return ErrLeaderGone
	case kind == reportFailed:
		return &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(value)}
	}
	cmd.Process, err = os.FindProcess(int(value))
	return err
}
