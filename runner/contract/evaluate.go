package contract

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
	"github.com/assay-run/assay-run/schema/redact"
)

// defaultOutputCap limits what is kept of one check's output, in bytes.
const defaultOutputCap = 4 << 20

// Executor runs one check's command, contained.
//
// Run starts the command with a shell in the working directory, without a terminal and with an empty standard input,
// and writes its combined stdout and stderr to out, from one goroutine at a time. It returns when the command and
// everything that it started has ended. At check.TimeoutSecs, or when ctx is done, it kills all of this. index is 1
// for the first check that a gate runs and grows by one with each, the baseline's included, so it can name a cgroup
// (check-<n>).
//
// An error means that the command could not run, or was interrupted by ctx. A command that fails, dies of a signal or
// times out has a status and no error.
type Executor interface {
	Run(ctx context.Context, check schema.Check, index int, out io.Writer) (ExitStatus, error)
}

// ExitStatus is how a command ended.
type ExitStatus struct {
	// Code is the exit status; it means nothing if Signal is set.
	Code int
	// Signal is the name of the signal that ended the command (SIGSEGV, ...).
	Signal string
	// TimedOut means that the command was killed at its timeout.
	TimedOut bool
}

// Options configure an evaluation. The zero value keeps no output and has no callbacks.
type Options struct {
	// Workdir appears in the command lines that rerun a check by hand.
	Workdir string
	// Output opens the bundle member at path, from schema.CheckOutputPath, for a check's output. Nil keeps only the
	// end of the output.
	Output func(path string) (io.WriteCloser, error)
	// Pieces removes secrets from a check's output, whose end is in the result; nil leaves them.
	Pieces func() *redact.Pieces
	// OutputCap limits what is kept of one check's output, in bytes; 0 means defaultOutputCap.
	OutputCap int64
	// Started and Completed are called when a check starts and ends, for the lifecycle events. Either may be nil.
	Started   func(phase Phase, check schema.Check)
	Completed func(phase Phase, check schema.Check, result schema.CheckResult)
	// Clock is the runner's clock. Nil means Go's monotonic clock.
	Clock func() time.Duration

	phase      Phase
	firstIndex int
	after      func(phase Phase, check string) // after each check; may be nil
}

// Phase distinguishes checks before the agent from checks after it.
type Phase string

// The phases of a run. The zero value means Final.
const (
	Baseline Phase = "baseline"
	Final    Phase = "final"
)

// Evaluation is the result of a contract's checks.
type Evaluation struct {
	Verdict string
	Reasons []string
	Results []schema.CheckResult
}

// Evaluate runs every check, one after the other, even after a failure. c must have no problems. If ctx ended the
// evaluation early, the error is ctx's. The evaluation lists every check in any case, including those that did not
// run.
func Evaluate(ctx context.Context, c *contractfile.Contract, exec Executor, opts Options) (*Evaluation, error) {
	if opts.Clock == nil {
		begin := time.Now()
		opts.Clock = func() time.Duration { return time.Since(begin) }
	}
	if opts.OutputCap == 0 {
		opts.OutputCap = defaultOutputCap
	}
	opts.phase = cmp.Or(opts.phase, Final)
	e := &Evaluation{}
	for i, check := range c.Checks {
		if ctx.Err() != nil {
			r := newResult(check, opts.Workdir)
			r.OutputTail = failedToRun + context.Cause(ctx).Error()
			e.Results = append(e.Results, r)
			continue
		}
		if opts.Started != nil {
			opts.Started(opts.phase, check)
		}
		result := runCheck(ctx, check, opts.firstIndex+i+1, exec, opts)
		e.Results = append(e.Results, result)
		if opts.Completed != nil {
			opts.Completed(opts.phase, check, result)
		}
		if opts.after != nil {
			opts.after(opts.phase, check.Name)
		}
	}
	e.conclude()
	return e, ctx.Err()
}

// notEvaluated is the evaluation of a contract whose checks were not run: it lists every check, and the verdict is
// inconclusive for the given reason.
func notEvaluated(c *contractfile.Contract, workdir, reason string) *Evaluation {
	e := &Evaluation{}
	for _, check := range c.Checks {
		r := newResult(check, workdir)
		r.OutputTail = failedToRun + reason
		e.Results = append(e.Results, r)
	}
	e.Verdict, e.Reasons = schema.VerdictInconclusive, []string{reason}
	return e
}

const failedToRun = "check failed to run: "

func newResult(check schema.Check, workdir string) schema.CheckResult {
	return schema.CheckResult{Name: check.Name, Rerun: rerun(check, workdir)}
}

func runCheck(ctx context.Context, check schema.Check, index int, exec Executor, opts Options) schema.CheckResult {
	r := newResult(check, opts.Workdir)
	begin := opts.Clock()
	out := newSink(check, opts)
	status, err := exec.Run(ctx, check, index, out)
	out.close(&r)
	r.DurationMS = max(0, (opts.Clock() - begin).Milliseconds())
	if err != nil {
		r.OutputTail = failedToRun + err.Error()
		return r
	}
	r.Ran, r.TimedOut = true, status.TimedOut
	if status.Signal != "" {
		r.Signal = &status.Signal
	} else {
		r.ExitCode = &status.Code
	}
	if check.OutputContains != nil {
		r.OutputMatched = &out.matched
	}
	exited := !check.ExpectExitZero || r.ExitCode != nil && *r.ExitCode == 0
	r.Passed = exited && !r.TimedOut && (r.OutputMatched == nil || *r.OutputMatched)
	return r
}

// conclude sets the verdict from the results. A check that failed decides, since running the others again could not
// make the contract pass.
func (e *Evaluation) conclude() {
	e.Verdict, e.Reasons = schema.VerdictPassed, []string{}
	for _, r := range e.Results {
		switch {
		case r.Passed:
		case r.Ran:
			e.Verdict = schema.VerdictFailed
			e.Reasons = append(e.Reasons, fmt.Sprintf("check %s failed: %s", r.Name, Why(r)))
		default:
			if e.Verdict == schema.VerdictPassed {
				e.Verdict = schema.VerdictInconclusive
			}
			e.Reasons = append(e.Reasons, fmt.Sprintf("check %s: %s", r.Name, r.OutputTail))
		}
	}
	if len(e.Results) == 0 {
		e.Verdict, e.Reasons = schema.VerdictInconclusive, []string{"the contract has no checks"}
	}
}

// Why says briefly why a check did not pass; empty if it passed.
func Why(r schema.CheckResult) string {
	switch {
	case r.Passed:
		return ""
	case !r.Ran:
		return "it could not run"
	case r.TimedOut:
		return "it ran out of time"
	case r.Signal != nil:
		return "killed by " + *r.Signal
	case r.OutputMatched != nil && !*r.OutputMatched:
		return fmt.Sprintf("exit status %d, and the output does not contain the text", *r.ExitCode)
	}
	return fmt.Sprintf("exit status %d", *r.ExitCode)
}
