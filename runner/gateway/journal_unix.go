//go:build unix

package gateway

import (
	"os"
	"syscall"
)

// lock locks a file while this process has it open. It reports false if another process has locked it.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK
}

// noFollow makes an open fail for a symbolic link, and not wait for a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
