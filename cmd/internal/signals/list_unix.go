package signals

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dropped are the signals that are caught and not passed on.
var dropped = []os.Signal{syscall.SIGPIPE}

// fromKernel reports whether the kernel can send n to this process for what this process itself does: it is about a
// limit that this process has. Such signals are dropped: Go does not say who sent one.
func fromKernel(n os.Signal) bool {
	about := map[os.Signal]int{syscall.SIGXCPU: unix.RLIMIT_CPU, syscall.SIGXFSZ: unix.RLIMIT_FSIZE}
	resource, limited := about[n]
	var limit unix.Rlimit
	return limited && (unix.Getrlimit(resource, &limit) != nil || limit.Cur < noLimit)
}

// noLimit is less than RLIM_INFINITY on any system.
const noLimit = 1<<63 - 1

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
