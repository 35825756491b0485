package main

import (
	"os"
	"os/signal"
	"syscall"
)

// caughtSignals are the signals that can be passed on to the command.
type caughtSignals struct {
	C     chan os.Signal
	ready chan struct{}
}

// catchSignals begins to deliver every signal that can be passed on; once wait
// has returned, all of them are. It goes on to the end of the program: a ^C
// that comes while the bundle is sealed must not end that.
//
// Signals that we were started to ignore (nohup) stay ignored, here and in the
// command. SIGPIPE is caught for nobody, so that a closed stdout is an error
// from write and not our death; no signal is set to be ignored, as the command
// would inherit that.
//
// Go takes some 40 µs for each signal, so the run is prepared meanwhile.
func catchSignals() *caughtSignals {
	s := &caughtSignals{C: make(chan os.Signal, 64), ready: make(chan struct{})}
	go func() {
		defer close(s.ready)
		for n := syscall.Signal(1); n <= lastSignal; n++ {
			switch n {
			case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGTTIN, syscall.SIGTTOU:
			case syscall.SIGPIPE:
				signal.Notify(make(chan os.Signal, 1), n)
			default:
				if !signal.Ignored(n) {
					signal.Notify(s.C, n)
				}
			}
		}
	}()
	return s
}

func (s *caughtSignals) wait() { <-s.ready }

// lastSignal is SIGRTMAX on Linux.
const lastSignal = 64
