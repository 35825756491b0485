package runner

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// inbox is where the signals for the run arrive. One goroutine at a time reads
// it: whoever supervises the command, or the checks.
type inbox struct {
	C           <-chan os.Signal // nil: none come
	interrupted bool             // a SIGINT or SIGTERM was passed on: a second one ends the run
	passed      map[string]bool  // the names of those that were passed on to the command
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
