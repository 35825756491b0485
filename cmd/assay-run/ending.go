package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

// ending is what comes after a run's command: the bundle is sealed, the user is told, and what the
// run held is released. A signal from the user ends these steps too.
type ending struct {
	*app
	result  *schema.Result
	grace   time.Duration
	timeout time.Duration // what is left of the run's timeout; 0: it has none

	messages *messageQueue
	signals  <-chan os.Signal
	told     time.Time // when a signal told the run to end, before its sealing; zero: none did
	state    atomic.Pointer[runner.State]
	code     int // what to exit with, once the state is StateReleasing
}

// released notes that the bundle is sealed, or cannot be.
func (e *ending) released(sealed bool) {
	if e.code = schema.ExitRunner; sealed {
		e.code = *e.result.RunnerExitCode
	}
	e.state.Store(new(runner.StateReleasing))
}

func (e *ending) releasing() bool { return e.state.Load() != nil }

const (
	// endTime is how long something may take to end after it was told to end.
	endTime = time.Second
	// tellTime bounds how long writing the reason to stderr may take: perhaps nobody reads it.
	tellTime = 500 * time.Millisecond
	// sealTime is how long sealing may go on after the grace, if the run was told to end before the
	// sealing.
	sealTime = time.Second
)

var errEnded = errors.New("the sealing was interrupted")

// attend calls f. SIGTERM or the end of ctx ends f after the grace; a second SIGTERM or SIGINT ends
// it at once. If the run was told to end before, f has the rest of the grace and sealTime. The
// run's timeout ends what comes after the sealing, but not the sealing: it limits the command, and
// the evidence of a command that ran out of time is worth the wait. abandoned reports whether f was
// left before it returned; f may then be stuck until this process ends.
func (e *ending) attend(ctx context.Context, f func(context.Context) error) (abandoned bool, err error) {
	cancelled := ctx.Done()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var timeout, soft, hard <-chan time.Time
	if e.timeout != 0 {
		timeout = time.After(max(0, e.timeout) + e.grace + endTime)
	}
	lastTime := endTime
	interrupted := false
	if !e.told.IsZero() { // the command has used some of the time
		interrupted, soft = true, time.After(time.Until(e.told.Add(e.grace+sealTime)))
		lastTime /= 2
	}
	for {
		select {
		case err := <-done:
			return false, err
		case sig := <-e.signals:
			switch {
			case sig != syscall.SIGTERM && sig != syscall.SIGINT:
			case interrupted:
				soft = time.After(0)
			case sig == syscall.SIGTERM:
				interrupted, soft = true, time.After(e.grace)
			default: // the first ^C was the command's
				interrupted = true
			}
		case <-cancelled:
			cancelled = nil
			if !interrupted {
				interrupted, soft = true, time.After(e.grace)
			}
		case <-soft:
			cancel(errEnded)
			if hard == nil { // else each further ^C would postpone the end
				hard = time.After(lastTime)
			}
		case <-timeout:
			if e.releasing() {
				return true, console.ExitError{Code: e.code}
			}
			timeout = time.After(endTime)
		case <-hard:
			return true, e.abandon()
		}
	}
}

// abandon returns the exit code of a run that does not end. It says that the bundle is missing,
// unless the bundle is sealed.
func (e *ending) abandon() error {
	if e.releasing() {
		return console.ExitError{Code: e.code}
	}
	e.say.Failure(console.WithHint(fmt.Errorf("%w, and did not end", errEnded),
		"the evidence is kept: seal it with assay-run recover"))
	e.messages.flushSoon()
	return console.ExitError{Code: schema.ExitRunner}
}

// messageQueue holds the messages of a run until they are written to stderr.
type messageQueue struct {
	*console.Queue
	app *app
}

// queueMessages queues a run's messages, so that the run never waits for whoever reads stderr.
func queueMessages(a *app) *messageQueue {
	q := &messageQueue{console.NewQueue(a.stderr), a}
	a.say.W = q
	return q
}

// end waits until all messages are written. Messages go to stderr from then on.
func (q *messageQueue) end() {
	q.Flush()
	q.app.say.W = q.app.stderr
}

// flushSoon waits until all messages are written, but for tellTime at most.
func (q *messageQueue) flushSoon() {
	flushed := make(chan struct{})
	go func() {
		q.Flush()
		close(flushed)
	}()
	select {
	case <-flushed:
	case <-time.After(tellTime):
	}
}

// tellFailure prints an error, and returns its exit code as an error with no message.
func tellFailure(say *console.Messages, err error) error {
	var exit console.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		say.Failure(err)
		return console.ExitError{Code: schema.ExitRunner}
	case exit.Err != nil:
		say.Failure(exit.Err)
	}
	return console.ExitError{Code: exit.Code}
}
