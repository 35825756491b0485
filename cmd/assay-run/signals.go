package main

import (
	"os"
	"os/signal"
	"syscall"
)

// catchSignals delivers every signal that can be passed on to the command.
// Signals that we were started to ignore (nohup) stay ignored, here and in the
// command. SIGPIPE is caught for nobody, so that a closed stdout is an error
// from write and not our death; no signal is set to be ignored, as the command
// would inherit that.
func catchSignals() (signals <-chan os.Signal, restore func()) {
	caught := make(chan os.Signal, 64)
	dropped := make(chan os.Signal, 1)
	for n := syscall.Signal(1); n <= lastSignal; n++ {
		switch n {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGTTIN, syscall.SIGTTOU:
		case syscall.SIGPIPE:
			signal.Notify(dropped, n)
		default:
			if !signal.Ignored(n) {
				signal.Notify(caught, n)
			}
		}
	}
	return caught, func() {
		signal.Stop(caught)
		signal.Stop(dropped)
	}
}

// lastSignal is SIGRTMAX on Linux.
const lastSignal = 64
