package sandbox

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run runs a command to its end in a sandbox of its own, and with it ends what it
// left behind. cmd is as Start wants it. Signals, which may be nil, are passed
// on. The error is Start's.
func Run(p *Profile, cmd *exec.Cmd, signals <-chan os.Signal, opt Options) (unix.WaitStatus, []Layer, error) {
	opt.EndWithCommand = true
	s, err := New(p, opt)
	if err != nil {
		return 0, nil, err
	}
	defer s.Close()
	cmd.Env = s.Environ(cmd.Env)
	inner, err := s.Start(cmd, (*exec.Cmd).Start, false)
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
	ended := make(chan unix.WaitStatus, 1)
	go func() {
		var last unix.WaitStatus
		told := false
		if s.states != nil {
			for st := range s.states {
				last, told = st, st.Exited() || st.Signaled()
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
			_ = pass(sig.(syscall.Signal))
		}
	}
}
