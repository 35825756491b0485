package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// killInterval is when what may hold up an opening or a check is killed again.
const killInterval = 100 * time.Millisecond

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

// keep keeps a signal for the command, which does not run yet.
func (in *inbox) keep(sig os.Signal) { in.early = append(in.early, sig) }

// pass notes that a signal was passed on to the command.
func (in *inbox) pass(sig syscall.Signal) { in.passed[unix.SignalName(sig)] = true }

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

// states keeps the state of a run, and calls on when it changes.
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

// ended is how a command ended.
type ended struct {
	outcome  string
	survived string        // who is left of it; empty: nobody
	runsAs   *sandbox.User // who it became; nil: who it was
}

// runError is a failure of the run itself, as result.json tells it.
type runError struct {
	source  string
	exit    int
	outcome string // empty: infra_error
	schema.ResultError
}

func (e *runError) Error() string { return e.Message }

func sandboxError(code string, err error) *runError {
	return &runError{source: schema.SourceSandbox, exit: ExitRunner,
		ResultError: schema.ResultError{Code: code, Message: err.Error()}}
}

// failed puts what kept a run from its end into the result.
func failed(res *schema.Result, err error) *runError {
	var failure *runError
	if !errors.As(err, &failure) {
		panic(fmt.Sprintf("runner: unsorted failure: %v", err))
	}
	res.Outcome = schema.OutcomeInfraError
	if failure.outcome != "" {
		res.Outcome = failure.outcome
	}
	res.ErrorSource, res.Error = &failure.source, &failure.ResultError
	return failure
}

// bootTime reads CLOCK_BOOTTIME, the one clock that everything in a run is
// ordered by. It goes on while the machine sleeps.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux 2.6.39 and later have it
	}
	return time.Duration(ts.Nano())
}

// step is something to do before the command runs. An error keeps the command from starting: a *runError, or
// what ended ctx.
type step func(ctx context.Context) error

// inOrder does steps until one fails or ctx ends. The end of ctx does not undo the last one.
func inOrder(ctx context.Context, steps ...step) error {
	for i, do := range steps {
		if err := do(ctx); err != nil {
			return err
		}
		if i+1 < len(steps) && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
