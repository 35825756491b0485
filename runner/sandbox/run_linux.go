package sandbox

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
)

// Run runs a command to its end in its own sandbox, and then ends everything that the command left behind. cmd is as
// for Start, and stays in the caller's process group. Run passes on signals, except those that a terminal sent to the
// whole group, and stops this process when the command stops. signals may be nil. The error is Start's.
func Run(p *Profile, cmd *exec.Cmd, signals <-chan os.Signal, opt Options) (unix.WaitStatus, []Layer, error) {
	opt.EndWithCommand = true
	s, err := New(p, opt)
	if err != nil {
		return 0, nil, err
	}
	defer s.Close()
	cmd.Env = s.Environ(cmd.Env)
	inner, err := s.Start(cmd, func(cmd *exec.Cmd) error { return cgroup.AsCaller(cmd, cmd.Start) }, false)
	if err != nil {
		if inner != nil {
			_ = inner.Wait()
		}
		return 0, s.Layers(), err
	}
	pass := s.Signal
	if s.states == nil {
		pass = func(sig syscall.Signal) error { return inner.Process.Signal(sig) }
	}
	ended, stopped := make(chan unix.WaitStatus, 1), make(chan struct{}, 1)
	go func() {
		var last unix.WaitStatus
		told := false
		if s.states != nil {
			for st := range s.states {
				last, told = st, st.Exited() || st.Signaled()
				if st.Stopped() {
					stopped <- struct{}{}
				}
			}
		}
		_ = inner.Wait()
		if !told {
			last = unix.WaitStatus(inner.ProcessState.Sys().(syscall.WaitStatus))
		}
		ended <- last
	}()
	for {
		select {
		case st := <-ended:
			return st, s.Layers(), nil
		case sig := <-signals:
			if !typed(sig) {
				_ = pass(sig.(syscall.Signal))
			}
			if sig == unix.SIGTSTP && s.states == nil {
				stopSelf()
			}
		case <-stopped:
			stopSelf()
			_ = pass(unix.SIGCONT) // it may have moved to another group
		}
	}
}

// stopSelf stops this process until it is continued.
func stopSelf() { _ = unix.Kill(unix.Getpid(), unix.SIGSTOP) }

// typed reports whether a signal comes from the terminal, which sends it to the whole foreground group, including the
// command.
func typed(sig os.Signal) bool {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGWINCH:
	default:
		return false
	}
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer unix.Close(tty)
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
