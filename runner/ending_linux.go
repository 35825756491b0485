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

// killInterval is the time between kills of processes that hold up a run's start or a check.
const killInterval = 100 * time.Millisecond

// inbox receives the signals for the run. One goroutine at a time reads it: the one that opens the parts, supervises
// the command, or waits for checks.
type inbox struct {
	C           <-chan os.Signal // nil: no signals
	early       []os.Signal      // signals that arrived before the command started
	interrupted bool             // a SIGINT or SIGTERM was passed on; a second one ends the run
	by          time.Time        // when the run must end after a SIGTERM; zero: none arrived
	passed      map[string]bool  // names of the signals that were passed on to the command
}

// interrupt records a SIGINT or SIGTERM. It reports whether this is the second one, which ends the run at once. The
// first SIGTERM ends the run after the grace.
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

// keep stores a signal for a command that has not started.
func (in *inbox) keep(sig os.Signal) { in.early = append(in.early, sig) }

// pass records that a signal was passed on to the command.
func (in *inbox) pass(sig syscall.Signal) { in.passed[unix.SignalName(sig)] = true }

// late receives when the run must end after a SIGTERM. It is nil if none arrived.
func (in *inbox) late() <-chan time.Time {
	if in.by.IsZero() {
		return nil
	}
	return time.After(time.Until(in.by))
}

// interruption is why something was ended early.
type interruption struct {
	sig     syscall.Signal // 0: not a signal
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
		return schema.ExitTimeout
	}
	return schema.ExitRunner
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

// states holds the state of a run, and calls on when it changes.
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

// namedShort names the first processes of a list, for a message.
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

// stopSelf stops this process, or its whole process group as ^Z in the terminal would, and returns when it is
// continued. It uses SIGSTOP because assay-run catches SIGTSTP.
func stopSelf(group bool) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	pid := os.Getpid()
	if group {
		pid = 0
	}
	_ = unix.Kill(pid, unix.SIGSTOP)
	<-continued // the stop may reach this thread with a delay
}

// commandEnd is how a command ended.
type commandEnd struct {
	outcome  string
	survived string        // processes of it that are still alive; empty: none
	runsAs   *sandbox.User // the user that it became; nil: it did not change
	kept     map[int]bool  // processes that are kept for the checks
}

// runError is a failure of the run itself, as result.json has it.
type runError struct {
	source  string
	exit    int
	outcome string // empty means infra_error
	schema.ResultError
}

func (e *runError) Error() string { return e.Message }

func sandboxError(code string, err error) *runError {
	return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner,
		ResultError: schema.ResultError{Code: code, Message: err.Error()}}
}

// failed records in the result why a run failed.
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

// bootTime reads CLOCK_BOOTTIME, the one clock that orders everything in a run. It advances while the machine sleeps.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux 2.6.39 and later have it
	}
	return time.Duration(ts.Nano())
}

// step is an action before the command starts. An error, a *runError or the cause of ctx, keeps the command from
// starting.
type step func(ctx context.Context) error

// inOrder does steps until one fails or ctx ends. A last step that succeeds is kept even if ctx ended meanwhile.
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
