package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

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
