package signals

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Caught are the signals that can be passed on to the command.
type Caught struct {
	C     chan os.Signal
	ready chan struct{}
	came  chan os.Signal      // received, to be delivered to C
	asked chan chan time.Time // for what Ended returns
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
	s := &Caught{C: make(chan os.Signal), ready: make(chan struct{}), came: make(chan os.Signal),
		asked: make(chan chan time.Time)}
	go s.pass()
	go func() {
		defer close(s.ready)
		for _, n := range dropped {
			signal.Notify(make(chan os.Signal, 1), n)
		}
		for _, n := range passedOn() {
			switch {
			case signal.Ignored(n):
			case fromKernel(n):
				signal.Notify(make(chan os.Signal, 1), n)
			default:
				s.catch(n)
			}
		}
	}()
	return s
}

// catch starts to deliver signal n, through a channel of its own.
func (s *Caught) catch(n os.Signal) {
	own := make(chan os.Signal, 1)
	signal.Notify(own, n)
	go func() {
		for n := range own {
			s.came <- n
		}
	}()
}

// pass delivers signals to C and answers Ended. As one goroutine does both, the answer includes exactly the signals
// that were received.
func (s *Caught) pass() {
	var ended time.Time
	interrupts := 0
	for {
		var n os.Signal
		var to chan os.Signal // nil while there is nothing to deliver
		var at time.Time
		select {
		case n = <-s.came:
			to, at = s.C, time.Now()
		case answer := <-s.asked:
			answer <- ended
		}
		for to != nil {
			select {
			case to <- n:
				to = nil
			case answer := <-s.asked:
				answer <- ended
			}
		}
		if n == syscall.SIGINT {
			interrupts++
		}
		if ended.IsZero() && (n == syscall.SIGTERM || n == syscall.SIGINT && interrupts == 2) {
			ended = at
		}
	}
}

// Wait waits until all signals are delivered.
func (s *Caught) Wait() { <-s.ready }

// Stop ends the catching: all signals have their usual effect again.
func (s *Caught) Stop() {
	s.Wait()
	signal.Reset()
}

// Ended returns when the signal came that told the run to end: the first SIGTERM, or the second SIGINT, that was
// received from C. It is zero if there was none. It is safe for concurrent use.
func (s *Caught) Ended() time.Time {
	answer := make(chan time.Time)
	s.asked <- answer
	return <-answer
}
