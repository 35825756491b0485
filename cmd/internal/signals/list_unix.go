//go:build !windows

package signals

import (
	"os"
	"syscall"
)

// dropped are the signals that are caught and not passed on.
var dropped = []os.Signal{syscall.SIGPIPE}

// passedOn returns every signal that can be passed on, up to SIGRTMAX on Linux. Go ignores the request for
// those that C libraries use (32 to 34).
func passedOn() []os.Signal {
	var all []os.Signal
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGTTIN, syscall.SIGTTOU,
			syscall.SIGPIPE:
		default:
			all = append(all, n)
		}
	}
	return all
}
