//go:build unix

package gateway

import (
	"os"
	"syscall"
)

// lock locks a file while this process has it open. It reports false where another has.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK
}

// noFollow keeps an open from following a symlink, and from waiting.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
