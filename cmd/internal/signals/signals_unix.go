//go:build !windows

package signals

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Caught are the signals that can be passed on to the command.
type Caught struct {
	C     chan os.Signal
	ready chan struct{}
}

// caught is the channel of all of them.
var caught = make(chan os.Signal, 64)

// last is SIGRTMAX on Linux.
const last = syscall.Signal(64)

// quiet are the signals that Go ignores in a program that does not ask for them (see
// sigtable in package runtime), without those that a terminal sends. The real-time signals
// are among them, but for those that C libraries use.
func quiet() []syscall.Signal {
	all := []syscall.Signal{
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGIO,
	}
	for n := syscall.Signal(35); n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// Catch starts to deliver every signal that can be passed on. Once Wait has returned, all of
// them are delivered, until the program ends: a ^C must not interrupt the sealing of the
// bundle.
//
// SIGHUP and SIGINT stay ignored if they were when assay-run started (nohup), here and in
// the command; Go tells of no other. SIGPIPE is caught and dropped, so that writing to a closed stdout
// returns an error instead of ending assay-run. No signal is set to be ignored, since
// the command would inherit that.
//
// It returns at once, so that the command can be prepared meanwhile.
func Catch() *Caught {
	s := &Caught{C: caught, ready: make(chan struct{})}
	catchQuiet()
	go func() {
		defer close(s.ready)
		left := quiet()
		for n := syscall.Signal(1); n <= last; n++ {
			switch n {
			case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGTTIN, syscall.SIGTTOU:
			case syscall.SIGPIPE:
				signal.Notify(make(chan os.Signal, 1), n)
			default:
				if !slices.Contains(left, n) {
					catch(n)
				}
			}
		}
	}()
	return s
}

// catch has a signal delivered. It is safe for concurrent use.
func catch(n syscall.Signal) {
	if !signal.Ignored(n) {
		signal.Notify(caught, n)
	}
}

// Wait waits until all signals are delivered.
func (s *Caught) Wait() { <-s.ready }
