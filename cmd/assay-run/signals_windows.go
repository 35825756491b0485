package main

import (
	"os"
	"os/signal"
)

// caughtSignals are the signals that can be passed on to the command.
type caughtSignals struct{ C chan os.Signal }

func catchSignals() *caughtSignals {
	s := &caughtSignals{make(chan os.Signal, 64)}
	signal.Notify(s.C, os.Interrupt)
	return s
}

func (s *caughtSignals) wait() {}
