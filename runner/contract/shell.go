//go:build linux || darwin

package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drainTime is how long the output of a command that has ended is waited for.
// All of it is in the pipe by then; only a process that has left the group can
// hold the pipe open longer.
const drainTime = 250 * time.Millisecond

// Shell is an [Executor] for a plain directory: each check is a session and
// process group of its own, which is killed whole. A process that leaves the
// group with setsid(2) outlives its check, which is why a run uses cgroups
// instead. On Linux the shell itself dies with this process. Shell is safe for
// concurrent use.
type Shell struct {
	// Dir is the working directory.
	Dir string
	// Env is the whole environment, as in exec.Cmd; nil means our own.
	Env []string
}

// Run implements [Executor].
func (s Shell) Run(ctx context.Context, check Check, _ int, out io.Writer) (ExitStatus, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return ExitStatus{}, fmt.Errorf("make the output pipe: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", check.Command)
	cmd.Dir, cmd.Env = s.Dir, s.Env
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = sessionAttr()
	// The parent-death signal is tied to the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	w.Close()
	if err != nil {
		return ExitStatus{}, startError(err, s.Dir)
	}
	group := cmd.Process.Pid

	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, r)
		copied <- err
	}()
	// The timer and ctx kill while the shell is not yet reaped, so that the
	// group's number cannot have become another's.
	watched := make(chan bool, 1)
	timer := time.NewTimer(time.Duration(check.TimeoutSecs) * time.Second)
	defer timer.Stop()
	exited := make(chan struct{})
	go func() {
		late := false
		select {
		case <-timer.C:
			late = true
		case <-ctx.Done():
		case <-exited:
		}
		unix.Kill(-group, unix.SIGKILL)
		watched <- late
	}()
	waitExited(group)
	close(exited)
	late := <-watched
	_ = cmd.Wait() // the state says more than the error
	awaitGone(group)
	r.SetReadDeadline(time.Now().Add(drainTime))
	if err := <-copied; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return ExitStatus{}, fmt.Errorf("read the output: %w", err)
	}
	return s.status(ctx, cmd.ProcessState, late)
}

// awaitGone gives the killed group the time to die, so that a process in the
// midst of a system call does not meddle with the next check. The dead that
// init is slow to reap still count, hence the limit.
func awaitGone(group int) {
	for deadline := time.Now().Add(drainTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if unix.Kill(-group, 0) == unix.ESRCH {
			return
		}
	}
}

func (s Shell) status(ctx context.Context, state *os.ProcessState, late bool) (ExitStatus, error) {
	ws, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case late:
		return ExitStatus{TimedOut: true, Signal: "SIGKILL"}, nil
	case ws.Signaled() && ctx.Err() != nil:
		return ExitStatus{}, fmt.Errorf("cut off: %w", context.Cause(ctx))
	case ws.Signaled():
		return ExitStatus{Signal: unix.SignalName(ws.Signal())}, nil
	}
	return ExitStatus{Code: ws.ExitStatus()}, nil
}

// startError tells a missing directory from a missing shell: both come back as
// "no such file" on /bin/sh.
func startError(err error, dir string) error {
	if dir != "" {
		if _, serr := os.Stat(dir); serr != nil {
			return fmt.Errorf("enter the working directory: %w", serr)
		}
	}
	return err
}
