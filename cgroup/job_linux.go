package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Job is a command that runs the way a shell runs one: in a process group of
// its own, in the foreground of its terminal, with a parent in the same session.
//
// The parent is a re-exec of this binary, the leader. It leads the terminal's
// session in place of a shell, and is in none of the run's cgroups. POSIX needs
// it: a group whose members all have their parents in another session is
// orphaned, and the kernel then ignores SIGTSTP, SIGTTIN and SIGTTOU in it
// (is_current_pgrp_orphaned, kernel/exit.c), so that no program could suspend.
//
// The leader goes with the runner, however that ends: they share a socket.
type Job struct {
	leader *exec.Cmd
	conn   *os.File
	fork   spawner
	once   sync.Once
	// join and home are v1 files: the leader's thread writes to the first of them
	// before it forks and to the others after, as a launcher does.
	join, home []string
}

// ErrLeaderGone is returned by Job.Wait when the leader was killed: how the
// command fares cannot be told any more.
var ErrLeaderGone = errors.New("the leader of the command's terminal session is gone")

// StartJob starts a command as Start does, as the foreground job of a new
// session on the terminal that is cmd.Stdin. cmd.SysProcAttr is the caller's to
// leave alone, and cmd.Process is set, but is no child of ours: Job.Wait tells
// how it fares, not cmd.Wait. Close the job when nothing of the run is left.
func (g *Group) StartJob(cmd *exec.Cmd) (*Job, error) {
	j := &Job{fork: startNative}
	if g.tree != nil {
		j.fork = forkNative
	}
	launch := func(cmd *exec.Cmd) error {
		j.join, j.home = g.joinFiles("tasks"), g.session.homeFiles()
		defer g.session.noteOurTasks()
		return j.spawn(cmd)
	}
	if err := g.startBy(cmd, j.spawn, launch); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// Wait returns the next change of the command's state, as wait4(2) with
// WUNTRACED and WCONTINUED; the last one tells how it ended. The error is
// ErrLeaderGone. One goroutine at a time may wait.
func (j *Job) Wait() (unix.WaitStatus, error) {
	kind, value, err := readReport(j.conn)
	if err != nil || kind != reportStatus {
		return 0, ErrLeaderGone
	}
	return unix.WaitStatus(value), nil
}

// Close lets the leader go, which hangs up the terminal on whatever of the
// session is left, and waits for it. Later calls do nothing.
func (j *Job) Close() {
	j.once.Do(func() {
		if j.leader != nil {
			j.conn.Close()
			waitNative(j.leader)
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

// spawn starts cmd through a leader. The leader's argument vector is: name,
// leaderArg, the number of its first descriptor and how many there are of a
// cgroup's directory (0 or 1), files to join and files to go home, path, argv...;
// before these, the first descriptor is the socket.
func (j *Job) spawn(cmd *exec.Cmd) (err error) {
	if cmd.Err != nil {
		return cmd.Err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket pair: %w", err)
	}
	j.conn = os.NewFile(uintptr(pair[0]), "leader")
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
	for _, name := range slices.Concat(j.join, j.home) {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
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
	args := []string{reexecName, leaderArg}
	for _, n := range []int{3 + len(passed), dirs, len(j.join), len(j.home)} {
		args = append(args, strconv.Itoa(n))
	}
	leader := &exec.Cmd{
		Path: "/proc/self/exe", Args: append(append(args, cmd.Path), argv...), Env: cmd.Env, Dir: cmd.Dir,
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, ExtraFiles: append(passed, theirs...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}
	if err := j.fork(leader); err != nil {
		return err
	}
	j.leader = leader
	theirs[0].Close() // so that its end is the end
	kind, value, err := readReport(j.conn)
	switch {
	case err != nil:
		return ErrLeaderGone
	case kind == reportFailed:
		return &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(value)}
	}
	cmd.Process, err = os.FindProcess(int(value))
	return err
}

// leaderMain is the leader's process: it starts the command, tells of every
// change of its state, and goes when the runner says so or is gone.
func leaderMain(args []string) int {
	if len(args) < 8 {
		return 125
	}
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(args[2+i])
	}
	first := n[0]
	if first < 3 {
		return 125
	}
	fd := first + 1
	take := func(n int) []int {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = fd
			unix.CloseOnExec(fd)
			fd++
		}
		return fds
	}
	unix.CloseOnExec(first)
	attr := &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	for _, dir := range take(n[1]) {
		attr.UseCgroupFD, attr.CgroupFD = true, dir
	}
	pid, err := forkIn(take(n[2]), take(n[3]), args[6], args[7:], attr)
	report := func(kind, value uint32) {
		var b [8]byte
		binary.NativeEndian.PutUint32(b[:4], kind)
		binary.NativeEndian.PutUint32(b[4:], value)
		_, _ = unix.Write(first, b[:])
	}
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		report(reportFailed, uint32(errno))
		return 125
	}
	// Only now: what is ignored stays so in a child.
	ignoreSignals()
	letGo(first)
	report(reportStarted, uint32(pid))
	go func() {
		for {
			var st unix.WaitStatus
			_, err := unix.Wait4(pid, &st, unix.WUNTRACED|unix.WCONTINUED, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			report(reportStatus, uint32(st))
		}
	}()
	var b [1]byte
	for {
		if _, err := unix.Read(first, b[:]); err != unix.EINTR {
			return 0
		}
	}
}

// forkIn starts the command from a thread that is in the v1 directories of join
// meanwhile. See launcher.run for why it writes "0".
func forkIn(join, home []int, path string, argv []string, attr *syscall.SysProcAttr) (pid int, err error) {
	runtime.LockOSThread()
	for _, fd := range join {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return 0, err
		}
	}
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: exactEnviron(), Files: []uintptr{0, 1, 2}, Sys: attr})
	for _, fd := range home {
		if _, herr := unix.Write(fd, []byte("0")); herr != nil && err == nil {
			// The group could never become empty with this thread in it.
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
			err = herr
		}
	}
	return pid, err
}

// letGo drops what the leader holds of the command's: a stream of which it had
// the last copy would never end.
func letGo(first int) {
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(null, fd, 0)
		}
		unix.Close(null)
	}
	for fd := 3; fd < first; fd++ {
		// The Go runtime's own are closed on exec, what we were given is not.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// ignoreSignals keeps a helper process alive through what is meant for others.
func ignoreSignals() {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGUSR1, unix.SIGUSR2)
}
