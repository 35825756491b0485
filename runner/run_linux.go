package runner

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// Run runs the command of spec and leaves every artifact of the run with the
// recorder. The Result is what result.json says and never nil, also when the
// command could not be started; its RunnerExitCode is what a command line
// should exit with. The error tells of evidence that could not be recorded:
// the layers then count what is missing, but the process should not exit 0.
//
// A spec that Validate finds fault with is refused before anything is done or
// recorded; the error is what it says.
//
// Cancelling ctx ends the run as a timeout does, with the outcome cancelled.
// On return nothing of the run is left: no process, cgroup or descriptor, unless
// Options.Freeing is set.
func Run(ctx context.Context, spec *Spec, opt Options) (*schema.Result, error) {
	if err := spec.Validate(); err != nil {
		return refused(spec, "spec_invalid", err)
	}
	spec, opt, err := spec.withPolicy(opt)
	if err != nil {
		return refused(spec, "policy_unusable", err)
	}
	if opt.Contained == nil { // who contains a run earlier checks this earlier
		if err := CheckDescriptors(spec.Kernel != KernelOff); err != nil {
			return refused(spec, "too_few_descriptors", err)
		}
	}
	spec.Preload()
	if opt.Freeing == nil {
		opt.Freeing = new(sync.WaitGroup)
		defer opt.Freeing.Wait()
	}
	r := newRun(spec, opt)
	r.log.Event(r.started())

	r.state.enter(StatePreparing)
	opened, told, err := r.open(ctx)
	if err == nil {
		var preparing sync.WaitGroup
		preparing.Go(evidence.Prepare) // while the command runs
		defer preparing.Wait()
		r.state.enter(StateRunning)
		err = r.command.supervise(ctx, told)
		r.session.account()
		r.state.enter(StateChecking)
		r.contract.settle(ctx, r.command.outcome, r.command.survived())
	} else {
		r.log.Event(startFailed(err))
	}
	r.state.enter(StateSealing)
	return r.finish(opened, err)
}

// run is a run in progress: its parts, and those that its story names.
type run struct {
	spec    *Spec
	log     *evidence.Log
	state   *states
	signals *inbox

	contract *contractPart
	session  *containment
	confined *confinement
	agent    *agentSide
	kernel   *observation
	command  *command
	parts    parts
	onHealth func(*schema.ObservationHealth) // may be nil
}

// newRun makes the parts of a run and gives each what it needs, which is all it
// ever knows. Their order is the order in which they are opened.
func newRun(spec *Spec, opt Options) *run {
	if opt.Contained == nil {
		opt.Contained = newContained(spec, opt)
	}
	r := &run{spec: spec, onHealth: opt.OnHealth, state: &states{on: opt.OnState}, log: evidence.New(evidence.Config{
		RunID: spec.RunID, Recorder: opt.Recorder, ScratchDir: opt.ScratchDir, Clock: bootTime, OnLoss: opt.OnLoss,
		Redactor: opt.Redactor,
	})}
	began, signals := bootTime(), &inbox{C: opt.Signals, passed: map[string]bool{}}
	r.signals = signals

	r.session = newContainment(r.log, opt, spec.Limits)
	r.contract = newContract(r.log, opt, spec, signals, r.session)
	r.confined = newConfinement(r.log, opt, spec)
	r.agent = newAgentSide(r.log, opt, spec, r.session, r.confined)
	outside := newContainers(r.log, spec, r.session, r.confined, r.agent.calls.Own)
	r.kernel = newObservation(r.log, spec, r.session, r.contract.marks(),
		outside.bind(r.confined.bind(r.agent.calls.Bind)), r.agent.calls.Wrote)
	r.kernel.starter, r.session.freeRest = outside.asked.starter, r.kernel.free
	streams := newStreams(r.log, opt, spec, r.session)
	r.command = newCommand(r.log, spec, signals, r.session, r.confined, streams, began)

	r.command.draining = func() { r.state.enter(StateDraining) }
	r.command.start, r.command.over = r.kernel.start, r.kernel.hurry
	r.command.outlived, r.session.slice, r.session.engines = outside.outlived, outside.bySystemd, spec.Containers
	r.confined.observed, r.confined.denials.observed = r.kernel.observed, r.kernel.observed
	r.confined.cgroup = func() string { return r.session.Path() }
	r.contract.permit = r.confined.permit
	r.contract.confine, r.confined.reach, r.confined.rules = r.confined.group, r.agent.reach, r.agent.rules
	r.contract.escaped, r.contract.atLarge, r.command.shape = r.kernel.escaped, r.kernel.atLarge, func() shaper {
		return r.parts
	}
	r.contract.strict, r.contract.strictly = newStrictChecks(spec, r.session.outlive, r.confined.checkUser),
		r.confined.strictly
	r.contract.complete = r.kernel.complete
	r.confined.runsAs, r.contract.user = func() *sandbox.User { return r.command.runsAs }, r.confined.checkUser
	r.contract.tampered, r.contract.touched = r.kernel.tampered, r.kernel.influence
	r.parts = parts{
		r.contract,
		r.session,
		r.confined,
		r.agent,
		outside,
		r.state.entering(StateSelfTest),
		r.kernel,
		r.state.entering(StatePreparing),
		step(opt.ready),
		step(r.contract.prepare),
		streams,
		r.state.entering(StateStarting),
		r.command,
	}
	return r
}

func (r *run) started() schema.Event {
	shim, zero := r.spec.AgentShim, int64(0)
	return schema.Event{
		Type: schema.RunStarted, AgentShim: &shim, Command: r.spec.Command, EnvKeys: sortedKeys(r.spec.Env),
		WindowElapsedMS: &zero,
	}
}

func startFailed(err error) schema.Event {
	return schema.Event{Type: schema.StartFailed, Code: failed(&schema.Result{}, err).Code, Message: err.Error()}
}

// finish takes the run apart and writes the closing event and the documents.
// why is what kept the command from its end, or nil.
func (r *run) finish(opened parts, why error) (*schema.Result, error) {
	res := &schema.Result{
		Schema: schema.ResultV0, RunID: r.spec.RunID,
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone}, Labels: r.spec.Labels,
		Limits: schema.Limits{
			MemoryBytes: int64(r.spec.Limits.Memory), Pids: r.spec.Limits.Pids, CPUMilli: int64(r.spec.Limits.CPUs),
		},
	}
	var failure *runError
	if why != nil {
		failure = failed(res, why)
	}
	missing := opened.close(res)
	exit := r.exitCode(res, failure)
	res.RunnerExitCode = &exit
	err := r.log.Finish(evidence.Findings{
		Result: res, Signal: r.command.exit - exitSignalBase, Success: res.Outcome == schema.OutcomeExited &&
			*res.ExitCode == 0,
		Calls: r.agent.calls, Observed: r.kernel.observed(), Correlation: r.kernel.correlation(),
		Unobserved: "lifecycle and stdio were recorded, kernel events were not",
		Health:     r.parts.health, Late: r.session.removed, Missing: missing,
		Settle: func(h *schema.ObservationHealth, missing error) {
			r.sound(res, h, missing, failure)
			if r.onHealth != nil {
				r.onHealth(h)
				r.onHealth = nil
			}
		},
	})
	return res, err
}

// sound makes the exit code say when the evidence is not what it was to be,
// whatever the command did.
func (r *run) sound(res *schema.Result, h *schema.ObservationHealth, missing error, failure *runError) {
	e := &schema.ResultError{}
	switch n := r.kernel.atLarge(); {
	case r.command.survivors > 0:
		e.Code, e.Message, e.Hint = codeSurvivors, r.command.survived(), r.command.remedy()
	case missing != nil:
		e.Code, e.Message, e.Hint = "evidence_missing", "evidence is missing: "+missing.Error(),
			"see observation-health.json in the bundle"
	case n > 0:
		e.Code = "processes_escaped"
		e.Message = schema.Count(n, "process left the run's cgroup and was",
			"processes left the run's cgroup and were") +
			" still alive when the run ended: the bundle does not show what happened after that"
		e.Hint = "run the command as a user that cannot write to other cgroups"
	case r.kernel.tampered() != "":
		e.Code, e.Message, e.Hint = "evidence_tampered", "the evidence was tampered with: "+r.kernel.tampered(),
			"run the command as another user (--user) or in a sandbox (--mode)"
	case failure != nil:
		return
	default:
		if e = unmet(r.spec.Require, r.spec.Kernel, h); e == nil {
			return
		}
	}
	source := schema.SourceRunner
	res.ErrorSource, res.Error = &source, e
	*res.RunnerExitCode = ExitRunner
}

// exitCode is what a command line exits with.
func (r *run) exitCode(res *schema.Result, failure *runError) int {
	switch {
	case failure != nil:
		return failure.exit
	case res.Outcome == schema.OutcomeTimeout:
		return ExitTimeout
	}
	inside := res.Outcome == schema.OutcomeSignaled && !r.command.signals.passed[r.command.signal]
	return judge(res, r.command.exit, inside)
}

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

// ready is a run's step that calls Ready.
func (o *Options) ready(context.Context) error {
	if o.Ready == nil {
		return nil
	}
	if err := o.Ready(); err != nil {
		return &runError{source: schema.SourceRunner, exit: ExitRunner,
			ResultError: schema.ResultError{Code: "not_ready", Message: err.Error()}}
	}
	return nil
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
