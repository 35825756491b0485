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
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainTime is how long Run waits for the output of a command that has ended. All output is in the
	// pipe already; only a process that has left the group can keep the pipe open.
	drainTime = 250 * time.Millisecond
	// deathTime is how long a killed group may take to be gone.
	deathTime = 10 * time.Second
)

// Group is what holds a check's processes together. A *cgroup.Group is one.
type Group interface {
	// Start starts the command inside the group.
	Start(cmd *exec.Cmd) error
	// Kill ends every member with SIGKILL.
	Kill() error
	// Wait returns when the group has no live member, or with ctx's error.
	Wait(ctx context.Context) error
}

// Shell is an [Executor] that runs each check with sh -c in a session and
// process group of its own, and, where it can, in a cgroup of its own. It is
// safe for concurrent use.
type Shell struct {
	// Dir is the working directory.
	Dir string
	// Env is the whole environment, as in exec.Cmd; nil means our own.
	Env []string
	// Group gives the fresh group of a check, named check-<index>. With nil it
	// is the process group: then a process that leaves it with setsid(2)
	// outlives its check. On Linux the shell itself dies with this process.
	Group func(name string) (Group, error)
}

// Run implements [Executor].
func (s Shell) Run(ctx context.Context, check Check, index int, out io.Writer) (ExitStatus, error) {
	var group Group = &processGroup{}
	var err error
	if s.Group != nil {
		if group, err = s.Group("check-" + strconv.Itoa(index)); err != nil {
			return ExitStatus{}, fmt.Errorf("make its group: %w", err)
		}
	}
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
	err = group.Start(cmd)
	w.Close()
	if err != nil {
		return ExitStatus{}, startError(err, s.Dir)
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, r)
		copied <- err
	}()
	late, killErr := s.await(ctx, cmd, group, time.Duration(check.TimeoutSecs)*time.Second)
	r.SetReadDeadline(time.Now().Add(drainTime))
	if err := <-copied; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return ExitStatus{}, fmt.Errorf("read the output: %w", err)
	}
	if killErr != nil {
		return ExitStatus{}, fmt.Errorf("end what it started: %w", killErr)
	}
	return exitStatus(ctx, cmd.ProcessState, late)
}

// await returns when the command has ended, at its timeout or by ctx if need
// be, and its group is gone.
func (s Shell) await(ctx context.Context, cmd *exec.Cmd, group Group, timeout time.Duration) (late bool, err error) {
	// The group is killed while the shell is not yet reaped, so that its
	// number cannot have become another's.
	exited := make(chan struct{})
	killed := make(chan struct{})
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	go func() {
		defer close(killed)
		select {
		case <-timer.C:
			late = true
		case <-ctx.Done():
		case <-exited:
		}
		err = group.Kill()
	}()
	waitExited(cmd.Process.Pid)
	close(exited)
	<-killed
	_ = cmd.Wait() // the state says more than the error
	dying, cancel := context.WithTimeout(context.WithoutCancel(ctx), deathTime)
	defer cancel()
	return late, errors.Join(err, group.Wait(dying))
}

func exitStatus(ctx context.Context, state *os.ProcessState, late bool) (ExitStatus, error) {
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

// processGroup is the group of a command that leads its own.
type processGroup struct{ pid int }

func (g *processGroup) Start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	g.pid = cmd.Process.Pid
	return nil
}

func (g *processGroup) Kill() error { return unix.Kill(-g.pid, unix.SIGKILL) }

// Wait gives the killed group the time to die, so that a process in the midst
// of a system call does not meddle with the next check. The dead that init is
// slow to reap still count, hence the limit.
func (g *processGroup) Wait(context.Context) error {
	for deadline := time.Now().Add(drainTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if unix.Kill(-g.pid, 0) == unix.ESRCH {
			break
		}
	}
	return nil
}
