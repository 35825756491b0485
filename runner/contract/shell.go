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

	"github.com/assay-run/assay-run/schema"
)

const (
	// drainTime is how long Run waits for the output of a command that has ended. All its output is in the pipe
	// already; only a process that has left the group can keep the pipe open.
	drainTime = 250 * time.Millisecond
	// deathTime is how long a killed group may take to end.
	deathTime = 10 * time.Second
)

// Group holds a check's processes together. *cgroup.Group implements it.
type Group interface {
	// Start starts the command inside the group.
	Start(cmd *exec.Cmd) error
	// Kill kills every member.
	Kill() error
	// Wait returns when the group has no live member, or with ctx's error.
	Wait(ctx context.Context) error
}

// Shell is an [Executor] that runs each check with sh -c in its own session and process group and, if possible, in
// its own cgroup. It is safe for concurrent use.
type Shell struct {
	// Dir is the working directory.
	Dir string
	// Env is the whole environment, as in exec.Cmd; nil means this process's.
	Env []string
	// Group returns a new group for a check, named check-<index>. Nil uses the process group: then a process that
	// leaves it with setsid(2) outlives its check. On Linux the shell itself dies with this process.
	Group func(name string) (Group, error)
}

// Run implements [Executor].
func (s Shell) Run(ctx context.Context, check schema.Check, index int, out io.Writer) (ExitStatus, error) {
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
	// The parent-death signal depends on the thread that forks.
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

// await returns when the command has ended, if necessary at its timeout or because of ctx, and its group is empty.
func (s Shell) await(ctx context.Context, cmd *exec.Cmd, group Group, timeout time.Duration) (late bool, err error) {
	// Kill the group before the shell is reaped, so that its number cannot be reused yet.
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

// startError tells a missing directory from a missing shell: for both, the error is "no such file" for /bin/sh.
func startError(err error, dir string) error {
	if dir != "" {
		if _, serr := os.Stat(dir); serr != nil {
			return fmt.Errorf("enter the working directory: %w", serr)
		}
	}
	return err
}

// processGroup is the process group that a command leads.
type processGroup struct{ pid int }

func (g *processGroup) Start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	g.pid = cmd.Process.Pid
	return nil
}

func (g *processGroup) Kill() error { return unix.Kill(-g.pid, unix.SIGKILL) }

// Wait waits for the killed group, so that a process inside a system call does not interfere with the next check.
// Dead processes that init has not reaped still count, so there is a limit.
func (g *processGroup) Wait(context.Context) error {
	for deadline := time.Now().Add(drainTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if unix.Kill(-g.pid, 0) == unix.ESRCH {
			break
		}
	}
	return nil
}
