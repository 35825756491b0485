package contract

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func sessionAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// waitExited returns when the process has ended, and does not reap it. It uses the system call of os.Process.Wait on
// this system.
func waitExited(pid int) {
	const pPID = 1
	var siginfo [16]uint64
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid),
			uintptr(unsafe.Pointer(&siginfo)), unix.WEXITED|unix.WNOWAIT, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}
