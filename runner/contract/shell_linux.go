package contract

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func sessionAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// waitExited returns when the process has ended, and does not reap it, so that its number still identifies its group.
func waitExited(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
