package signals

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// Caught are the signals that can be passed on to the command.
type Caught struct {
	C     chan os.Signal
	ready chan struct{}

	interrupts atomic.Int32              // how many SIGINT came
	ended      atomic.Pointer[time.Time] // see Ended; nil: not yet
}

// Catch starts to deliver to C every signal that can be passed on. After Wait has returned, all of them are
// delivered, until the program ends: a ^C must not interrupt the sealing of the bundle.
//
// SIGHUP and SIGINT stay ignored, here and in the command, if they were ignored when assay-run started (nohup);
// Go reports this of no other signal. SIGPIPE is caught and dropped, so that writing to a closed stdout returns
// an error instead of ending assay-run. No signal is set to be ignored, because the command would inherit that.
//
// Catch returns at once: Go takes some 40 µs for each signal, and the command can be prepared meanwhile.
func Catch() *Caught {
	s := &Caught{C: make(chan os.Signal), ready: make(chan struct{})}
	go func() {
		defer close(s.ready)
		for _, n := range dropped {
			signal.Notify(make(chan os.Signal, 1), n)
		}
		for _, n := range passedOn() {
			if !signal.Ignored(n) {
				s.catch(n)
			}
		}
	}()
	return s
}

// catch has signal n delivered to C, through a channel of its own.
func (s *Caught) catch(n os.Signal) {
	own := make(chan os.Signal, 1)
	signal.Notify(own, n)
	go func() {
		for n := range own {
			if n == syscall.SIGTERM || n == syscall.SIGINT && s.interrupts.Add(1) == 2 {
				s.ended.CompareAndSwap(nil, new(time.Now()))
			}
			s.C <- n
		}
	}()
}

// Wait waits until all signals are delivered.
func (s *Caught) Wait() { <-s.ready }

// Stop gives all signals their usual effect again.
func (s *Caught) Stop() {
	s.Wait()
	signal.Reset()
}

// Ended returns when a signal first told the run to end: SIGTERM, or the second SIGINT. It is zero if none
// did. It is safe for concurrent use.
func (s *Caught) Ended() time.Time {
	if at := s.ended.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
