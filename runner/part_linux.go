package runner

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// part is one of the things that a run is made of, such as its containment, its
// observation or its contract. A part is given what it needs when it is made,
// keeps what it learns, and gives that back when it is closed: it never sees
// the run as a whole. All methods are called by the goroutine of Run.
type part interface {
	// open prepares the part for the command, after the parts before it. An
	// error, which is a *runError, keeps the command from starting.
	open(ctx context.Context) error
	// close ends the part once no process of the run is left but the parts
	// before it are still open, and adds what it knows to the result. It is called
	// once, also for a part that could not be opened. The error tells of
	// evidence that is missing.
	close(res *schema.Result) error
	// health adds what the part has to say of the evidence. It comes after
	// every close, and is called for parts that were never opened, too.
	health(h *schema.ObservationHealth)
}

// shaper is a part that changes the command before it starts: its
// environment, its attributes, what it is executed through. It is asked in the
// order of the parts.
type shaper interface {
	shape(cmd *exec.Cmd) error
}

// parts are a run's parts in the order in which they are opened.
type parts []part

// open opens the parts until one fails. What it returns are those to close.
func (ps parts) open(ctx context.Context) (opened parts, err error) {
	for i, p := range ps {
		if err := p.open(ctx); err != nil {
			return ps[:i+1], err
		}
		if i+1 < len(ps) && ctx.Err() != nil { // or the command has started
			return ps[:i+1], context.Cause(ctx)
		}
	}
	return ps, nil
}

// close closes the parts, the last one first.
func (ps parts) close(res *schema.Result) error {
	var errs []error
	for _, p := range slices.Backward(ps) {
		errs = append(errs, p.close(res))
	}
	return errors.Join(errs...)
}

func (ps parts) health(h *schema.ObservationHealth) {
	for _, p := range ps {
		p.health(h)
	}
}

// shape lets every part that wants to change the command.
func (ps parts) shape(cmd *exec.Cmd) error {
	for _, p := range ps {
		if s, ok := p.(shaper); ok {
			if err := s.shape(cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

// step is a part that is nothing but something to do before the command starts.
type step func(ctx context.Context) error

func (s step) open(ctx context.Context) error { return s(ctx) }
func (step) close(*schema.Result) error       { return nil }
func (step) health(*schema.ObservationHealth) {}

// runError is a failure of the run itself, as result.json tells it.
type runError struct {
	source  string
	exit    int
	outcome string // empty: infra_error
	schema.ResultError
}

func (e *runError) Error() string { return e.Message }

func sandboxError(code string, err error) *runError {
	return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{Code: code, Message: err.Error()}}
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

// ready is a run's step that calls Ready.
func (o *Options) ready(context.Context) error {
	if o.Ready == nil {
		return nil
	}
	if err := o.Ready(); err != nil {
		return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: schema.ResultError{Code: "not_ready", Message: err.Error()}}
	}
	return nil
}
