package runner

import (
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
