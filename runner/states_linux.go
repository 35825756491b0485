package runner

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// waitStates reports every change of the child until it is gone, or is closed
// when that cannot be told. It owns the reaping: nobody else may wait for it.
func (r *run) waitStates() <-chan unix.WaitStatus {
	next := func() (st unix.WaitStatus, err error) {
		for err = unix.EINTR; err == unix.EINTR; {
			_, err = unix.Wait4(r.cmd.Process.Pid, &st, unix.WUNTRACED|unix.WCONTINUED, nil)
		}
		if err != nil {
			panic("wait4: " + err.Error()) // our own child, reaped here alone
		}
		return st, nil
	}
	if r.job != nil {
		next = r.job.Wait
	}
	states := make(chan unix.WaitStatus)
	go func() {
		for {
			st, err := next()
			if err != nil {
				close(states)
				return
			}
			states <- st
			if st.Exited() || st.Signaled() {
				return
			}
		}
	}()
	return states
}

// stopSelf stops this process, or with it our whole process group as the
// terminal's ^Z would have, and returns when it is continued. It uses SIGSTOP
// because we catch SIGTSTP.
func stopSelf(group bool) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	pid := os.Getpid()
	if group {
		pid = 0
	}
	_ = unix.Kill(pid, unix.SIGSTOP)
	<-continued // another thread may take the stop, and this one run on for a while
}
