//go:build !windows

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

// catchSignals starts to deliver every signal that can be passed on. Once wait has
// returned, all of them are delivered, until the program ends: a ^C must not
// interrupt the sealing of the bundle.
//
// Signals that were ignored when assay-run started (nohup) stay ignored, here and in
// the command. SIGPIPE is caught and dropped, so that writing to a closed stdout
// returns an error instead of ending assay-run. No signal is set to be ignored, since
// the command would inherit that.
//
// Go takes some 40 µs for each signal, so the command is prepared meanwhile.
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
