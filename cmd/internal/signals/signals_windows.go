package signals

import (
	"os"
	"os/signal"
)

// Caught are the signals that can be passed on to the command.
type Caught struct{ C chan os.Signal }

// Catch starts to deliver the interrupt.
func Catch() *Caught {
	s := &Caught{make(chan os.Signal, 64)}
	signal.Notify(s.C, os.Interrupt)
	return s
}

// Wait waits until all signals are delivered.
func (s *Caught) Wait() {}
