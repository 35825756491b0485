package runner

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// inbox is where the signals for the run arrive. One goroutine at a time reads
// it: whoever opens the parts, supervises the command, or attends the checks.
type inbox struct {
	C           <-chan os.Signal // nil: none come
	early       []os.Signal      // came before the command could get them
	interrupted bool             // a SIGINT or SIGTERM was passed on: a second one ends the run
	by          time.Time        // when a SIGTERM ends the run; zero: none came
	passed      map[string]bool  // the names of those that were passed on to the command
}

// interrupt notes a SIGINT or SIGTERM. It reports whether that is the second one, which ends the
// run at once. The first SIGTERM ends it after the grace.
func (in *inbox) interrupt(sig syscall.Signal, grace time.Duration) (second bool) {
	if in.interrupted {
		return true
	}
	in.interrupted = true
	if sig == syscall.SIGTERM {
		in.by = time.Now().Add(grace)
	}
	return false
}

// late receives when a SIGTERM ends the run. It is nil if none came.
func (in *inbox) late() <-chan time.Time {
	if in.by.IsZero() {
		return nil
	}
	return time.After(time.Until(in.by))
}

// interruption is why something was ended before its time.
type interruption struct {
	sig     syscall.Signal // 0: no signal was the reason
	outcome string
}

func (i *interruption) Error() string {
	switch {
	case i.sig != 0:
		return "interrupted by " + unix.SignalName(i.sig)
	case i.outcome == schema.OutcomeTimeout:
		return "timed out"
	}
	return "the run was cancelled"
}

func (i *interruption) exit() int {
	switch {
	case i.sig != 0:
		return exitSignalBase + int(i.sig)
	case i.outcome == schema.OutcomeTimeout:
		return ExitTimeout
	}
	return ExitRunner
}

// failure is the failure of a run that was ended before its command started.
func (i *interruption) failure(message string) *runError {
	code := "cancelled"
	if i.outcome == schema.OutcomeTimeout {
		code = "timeout"
	}
	return &runError{source: schema.SourceRunner, exit: i.exit(), outcome: i.outcome,
		ResultError: schema.ResultError{Code: code, Message: message}}
}

const (
	// abandonTime is how long an opening that is told to end may take for that, besides the grace.
	abandonTime = time.Second
	// killInterval is when what may hold up an opening or a check is killed again.
	killInterval = 100 * time.Millisecond
)

// opening is the time of a run before its command runs.
type opening struct {
	*run
	stop    context.CancelCauseFunc
	why     *interruption    // nil until the run is told to end
	kill    <-chan time.Time // when what may hold up the opening is killed
	abandon <-chan time.Time // when the opening is waited for no longer
}

// open opens the parts, and ends that when the run is told to end. why is not nil if the command
// was started all the same. What it returns are the parts to close: none if one of
// them still does not end, which this process then leaves to the guard.
func (r *run) open(ctx context.Context) (opened parts, why *interruption, err error) {
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	type outcome struct {
		opened parts
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		opened, err := r.parts.open(inner)
		ended <- outcome{opened, err}
	}()
	o := &opening{run: r, stop: stop}
	var deadline <-chan time.Time
	if r.spec.Timeout > 0 && !r.spec.ContractBaseline { // checks have timeouts of their own
		deadline = time.After(r.spec.Timeout + r.spec.Grace + abandonTime)
	}
	for done := ctx.Done(); ; {
		select {
		case e := <-ended:
			if o.why != nil && e.err != nil {
				e.err = o.ended(e.err)
			}
			return e.opened, o.why, e.err
		case <-done:
			done = nil
			o.end(&interruption{outcome: schema.OutcomeCancelled}, r.spec.Grace,
				schema.Event{Type: schema.Cancelled, Message: context.Cause(ctx).Error()})
		case <-deadline:
			o.end(&interruption{outcome: schema.OutcomeTimeout}, 0, schema.Event{Type: schema.Timeout})
		case sig := <-r.signals.C:
			o.signal(sig.(syscall.Signal))
		case <-o.kill:
			r.session.made.kill()
			o.kill = time.After(killInterval)
		case <-o.abandon:
			r.session.made.abandoned.Store(true)
			return nil, o.why, o.undying()
		}
	}
}

// signal keeps a signal for the command, unless it ends the run or is a baseline check's.
func (o *opening) signal(sig syscall.Signal) {
	switch {
	case sig == syscall.SIGINT || sig == syscall.SIGTERM:
		e := schema.Event{Type: schema.Cancelled, SignalName: unix.SignalName(sig),
			Message: "interrupted before the command started"}
		o.end(&interruption{sig: sig, outcome: schema.OutcomeCancelled}, o.spec.Grace, e)
	case !o.contract.hear(sig):
		o.signals.early = append(o.signals.early, sig)
	}
}

func (o *opening) end(why *interruption, grace time.Duration, e schema.Event) {
	if o.why != nil {
		return
	}
	o.log.Event(e)
	o.why, o.kill, o.abandon = why, time.After(0), time.After(grace+abandonTime)
	o.stop(why)
}

// ended is the failure of an opening that was told to end, and did with err.
func (o *opening) ended(err error) error {
	if e, ok := err.(*runError); ok && e.outcome != "" {
		return err
	}
	return o.why.failure(o.message())
}

func (o *opening) message() string {
	return fmt.Sprintf("%v before the command started (%s)", o.why, o.state.Load())
}

// undying is the failure of an opening that did not end.
func (o *opening) undying() error {
	e := o.why.failure(o.message())
	e.exit, e.Code = ExitRunner, "run_undying"
	e.Message += "; that did not end, and was abandoned"
	if left := o.session.made.left(); left != "" {
		e.Message += ", with these processes: " + left
	}
	e.Hint = "end them by hand; /proc/PID/stack shows what each waits for"
	return e
}

// states keeps the state of a run, and tells others of it.
type states struct {
	now atomic.Pointer[State]
	on  func(State) // may be nil
}

func (s *states) Load() State { return *s.now.Load() }

func (s *states) enter(state State) {
	s.now.Store(&state)
	if s.on != nil {
		s.on(state)
	}
}

// entering is a step into a state.
func (s *states) entering(state State) step {
	return func(context.Context) error {
		s.enter(state)
		return nil
	}
}

// namedShort names the first processes of a list for a message.
func namedShort(list []schema.Leftover) string {
	const most = 8
	var names []string
	for _, p := range list[:min(len(list), most)] {
		names = append(names, fmt.Sprintf("%s (%d)", p.Name, p.PID))
	}
	if more := len(list) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
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
