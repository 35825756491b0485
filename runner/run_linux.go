package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/modelfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Run runs the command of spec and leaves every artifact of the run with the recorder. The Result is the content of
// result.json and never nil, even if the command could not start; its RunnerExitCode is the exit code for a command
// line. The error lists evidence that could not be recorded: the layers count what is missing, but the process should
// not exit with 0.
//
// If Validate reports an error for spec, Run returns that error before it does or records anything.
//
// Cancelling ctx ends the run as a timeout does, with the outcome cancelled. When Run returns, no process, cgroup or
// descriptor of the run is left, unless Options.Freeing is set.
func Run(ctx context.Context, spec *specfile.Spec, opt Options) (*schema.Result, error) {
	own := *spec
	spec = &own
	if err := spec.LoadAgent(); err != nil {
		return refused(spec, "spec_invalid", err)
	}
	if err := spec.Validate(); err != nil {
		return refused(spec, "spec_invalid", err)
	}
	if spec.Recipe != nil && spec.AgentShim != specfile.ShimNone && spec.SDKEventLog == "" {
		dir, err := rundir.Open()
		if err != nil {
			return refused(spec, "sdk_event_log_unusable", err)
		}
		defer func() { _ = dir.Remove() }() // if this fails, a later run removes it
		spec.SDKEventLog = filepath.Join(dir.Path, "events.ndjson")
	}
	opt, err := readFiles(spec, opt)
	if err != nil {
		return refused(spec, "policy_unusable", err)
	}
	spec = under(spec, opt)
	if err := errors.Join(spec.CheckModel(), spec.CheckModelPolicy(opt.Policy)); err != nil {
		return refused(spec, "model_gateway_unusable", err)
	}
	if spec.Model.Replay != "" && opt.Replay == nil {
		return refused(spec, "model_gateway_unusable", fmt.Errorf("%w: the bundle to replay was not loaded",
			modelfile.ErrGateway))
	}
	if opt.Contained == nil { // Contain's caller has checked it earlier
		if err := CheckDescriptors(spec.Kernel != specfile.KernelOff); err != nil {
			return refused(spec, "too_few_descriptors", err)
		}
	}
	Preload(spec)
	if opt.Freeing == nil {
		opt.Freeing = new(sync.WaitGroup)
		defer opt.Freeing.Wait()
	}
	r := newRun(spec, opt)
	r.log.Event(r.started())

	r.state.enter(StatePreparing)
	interrupted, err := r.open(ctx)
	if err == nil {
		var preparing sync.WaitGroup
		preparing.Go(evidence.Prepare) // while the command runs
		defer preparing.Wait()
		r.state.enter(StateRunning)
		err = r.command.supervise(ctx, interrupted)
		r.enclosure.account()
		r.state.enter(StateChecking)
		r.enclosure.giveBack(context.WithoutCancel(ctx))
		r.workspace.keep(ctx, r.command.conclusion())
		r.check(ctx)
		r.command.endServers(ctx)
	} else {
		r.log.Event(startFailed(err))
	}
	r.state.enter(StateSealing)
	return r.finish(err)
}

// run is a run in progress: its three parts, its contract, and its workspace.
type run struct {
	spec    *specfile.Spec
	log     *evidence.Log
	state   *states
	signals *inbox
	held    *Contained

	evaluation *evaluationPart
	enclosure  *enclosure
	witness    *witness
	command    *command
	contract   *contractPart
	workspace  *workspacePart

	escaped int // processes that were alive outside the run's cgroup when it ended

	beforeCommand func() error                    // Options.Ready; may be nil
	onHealth      func(*schema.ObservationHealth) // may be nil
	freeing       *sync.WaitGroup
}

// newRun makes the parts of a run. Each gets everything that it needs from its constructor.
func newRun(spec *specfile.Spec, opt Options) *run {
	began := bootTime()
	if opt.Contained == nil {
		opt.Contained = newContained(spec, opt, cgroup.Probe, false)
	}
	log := evidence.New(evidence.Config{
		RunID: spec.RunID, Recorder: opt.Recorder, ScratchDir: opt.ScratchDir, Clock: bootTime, OnLoss: opt.OnLoss,
		Redactor: opt.Redactor, Model: spec.Model.On(),
	})
	state, signals := &states{on: opt.OnState}, &inbox{C: opt.Signals, passed: map[string]bool{}}
	var marked *layer.Checks // the cgroups of checks
	if spec.Contract != "" {
		marked = &layer.Checks{}
	}
	var gate *contractPart
	evaluation := &evaluationPart{log: log, spec: spec, file: opt.Evaluation, unusable: opt.unusable,
		ours: append([]string{opt.ScratchDir}, opt.Evidence...), contract: func() schema.ContractDefinition {
			return gate.definition()
		}}
	enclosure := newEnclosure(log, opt, spec, evaluation)
	witness := newWitness(log, opt, spec, enclosure, marked)
	gate = newContract(log, opt, spec, signals, marked, enclosure, enclosure.outlive, witness, evaluation)
	return &run{
		spec: spec, log: log, state: state, signals: signals, held: opt.Contained,
		evaluation: evaluation,
		enclosure:  enclosure,
		witness:    witness,
		command: newCommand(log, opt, spec, signals, state, enclosure, witness,
			evaluation.ports, began),
		contract:  gate,
		workspace: newWorkspace(log, opt, spec, witness.wrote, evaluation.outside, gate.attended),

		beforeCommand: opt.Ready, onHealth: opt.OnHealth, freeing: opt.Freeing,
	}
}

// steps are what Run does before the command runs.
func (r *run) steps() []step {
	return []step{
		r.contract.read,
		r.evaluation.keep,
		r.enclosure.open,
		r.witness.listen,
		r.enter(StateSelfTest),
		r.witness.observe,
		r.enter(StatePreparing),
		r.ready,
		r.baseline,
		r.workspace.begin,
		r.command.streams.open,
		r.enter(StateStarting),
		r.command.start,
	}
}

func (r *run) enter(state State) step {
	return func(context.Context) error {
		r.state.enter(state)
		return nil
	}
}

func (r *run) ready(context.Context) error {
	if r.beforeCommand == nil {
		return nil
	}
	if err := r.beforeCommand(); err != nil {
		return &runError{source: schema.SourceRunner, exit: schema.ExitRunner,
			ResultError: schema.ResultError{Code: "not_ready", Message: err.Error()}}
	}
	return nil
}

// baseline evaluates the contract before the command. Its usage does not count as the command's.
func (r *run) baseline(ctx context.Context) error {
	if err := r.contract.takeBaseline(ctx); err != nil {
		return err
	}
	if r.spec.ContractBaseline {
		r.enclosure.startAccount()
	}
	return nil
}

// check evaluates the contract after the command. The command's usage must be counted before.
func (r *run) check(ctx context.Context) {
	if r.spec.Contract != "" {
		r.enclosure.accounted()
	}
	r.contract.check(ctx, r.command.conclusion())
}

// abandonTime is how long the start of a run may take to end, in addition to the grace.
const abandonTime = time.Second

// opening is the phase before the command runs.
type opening struct {
	*run
	stop    context.CancelCauseFunc
	why     *interruption    // nil until the run must end
	event   schema.Event     // recorded if the command does not start
	kill    <-chan time.Time // when to kill what may block the opening
	abandon <-chan time.Time // when to stop waiting for the opening
}

// open runs the steps that start the command, and ends them when the run must end. why is non-nil if the command was
// started nevertheless. A step that still does not end is left to the guard.
func (r *run) open(ctx context.Context) (why *interruption, err error) {
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- inOrder(inner, r.steps()...) }()
	o := &opening{run: r, stop: stop}
	var deadline <-chan time.Time
	if r.spec.Timeout > 0 && !r.spec.ContractBaseline { // checks have their own timeouts
		deadline = time.After(r.spec.Timeout + r.spec.Grace + abandonTime)
	}
	for done := ctx.Done(); ; {
		select {
		case err := <-ended:
			return o.conclude(err)
		case <-done:
			done = nil
			o.end(&interruption{outcome: schema.OutcomeCancelled}, r.spec.Grace,
				schema.Event{Type: schema.Cancelled, Message: context.Cause(ctx).Error()})
		case <-deadline:
			o.end(&interruption{outcome: schema.OutcomeTimeout}, 0, schema.Event{Type: schema.Timeout})
		case sig := <-r.signals.C:
			o.signal(sig.(syscall.Signal))
		case <-o.kill:
			if !r.command.running.Load() {
				r.held.kill()
			}
			o.kill = time.After(killInterval)
		case <-o.abandon:
			r.held.abandon()
			r.log.Event(o.event)
			return o.why, o.undying()
		}
	}
}

// signal keeps a signal for the command, unless a baseline check gets it. SIGINT and SIGTERM end the opening. If the
// command is just starting, it gets them.
func (o *opening) signal(sig syscall.Signal) {
	switch {
	case sig == syscall.SIGINT || sig == syscall.SIGTERM:
		o.signals.keep(sig)
		e := schema.Event{Type: schema.Cancelled, SignalName: unix.SignalName(sig),
			Message: "interrupted before the command started"}
		o.end(&interruption{sig: sig, outcome: schema.OutcomeCancelled}, o.spec.Grace, e)
	case !o.contract.hear(sig):
		o.signals.keep(sig)
	}
}

func (o *opening) end(why *interruption, grace time.Duration, e schema.Event) {
	if o.why != nil {
		return
	}
	o.why, o.event, o.kill, o.abandon = why, e, time.After(killInterval), time.After(grace+abandonTime)
	o.stop(why)
}

// conclude returns the result of open after the steps ended with err.
func (o *opening) conclude(err error) (*interruption, error) {
	switch {
	case o.why == nil:
		return nil, err
	case err == nil && o.why.sig != 0: // the command runs, and gets the signal
		return nil, nil
	}
	o.log.Event(o.event)
	if err != nil {
		err = o.ended(err)
	}
	return o.why, err
}

// ended returns the failure of an interrupted opening that ended with err.
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
	e.exit, e.Code = schema.ExitRunner, "run_undying"
	e.Message += "; that did not end, and was abandoned"
	if left := o.held.left(); left != "" {
		e.Message += ", with these processes: " + left
	}
	e.Hint = "end them by hand; /proc/PID/stack shows what each waits for"
	return e
}

func (r *run) started() schema.Event {
	shim, zero := r.spec.AgentShim, int64(0)
	return schema.Event{
		Type: schema.RunStarted, AgentShim: &shim, Command: r.spec.Command, EnvKeys: r.spec.EnvKeys(),
		WindowElapsedMS: &zero,
	}
}

func startFailed(err error) schema.Event {
	return schema.Event{Type: schema.StartFailed, Code: failed(&schema.Result{}, err).Code, Message: err.Error()}
}

// close closes the parts, which add what they know to the result. The error lists missing evidence. If the opening
// was abandoned, nothing is closed.
func (r *run) close(res *schema.Result) error {
	if r.held.abandoned.Load() {
		r.escaped = r.witness.atLarge(nil)
		return nil
	}
	r.command.close(res)
	unobserved := r.witness.close(res)
	unclosed := r.enclosure.close(res, r.witness)
	err := errors.Join(unobserved, unclosed, r.workspace.close(), r.contract.close(res))
	// Calls that seccomp notifies fail once the observer is freed, and who makes one may end of it.
	r.escaped = r.witness.atLarge(nil)
	r.freeing.Go(func() { r.enclosure.release(r.witness.free) })
	return err
}

// health adds the parts' reasons. It is called after close.
func (r *run) health(h *schema.ObservationHealth) {
	r.enclosure.health(h, r.witness.observed())
	r.witness.health(h)
	r.command.health(h)
}

// finish closes the run and writes the closing event and the documents. why is the error that kept the command from
// its end, or nil.
func (r *run) finish(why error) (*schema.Result, error) {
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
	missing := r.close(res)
	exit := r.exitCode(res, failure)
	res.RunnerExitCode = &exit
	err := r.log.Finish(evidence.Findings{
		Result: res, Signal: r.command.exit - exitSignalBase, Success: res.Outcome == schema.OutcomeExited &&
			*res.ExitCode == 0,
		Calls: r.witness.calls, Observed: r.witness.observed(), Correlation: r.witness.correlation(),
		Unobserved: "lifecycle and stdio were recorded, kernel events were not",
		Health:     r.health, Late: r.enclosure.removed, Missing: missing,
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

// sound sets the exit code to ExitRunner if the evidence is incomplete, whatever the command did.
func (r *run) sound(res *schema.Result, h *schema.ObservationHealth, missing error, failure *runError) {
	e := &schema.ResultError{}
	switch n := r.escaped; {
	case r.command.survivors > 0:
		e.Code, e.Message, e.Hint = codeSurvivors, r.command.survived(), r.command.remedy()
	case missing != nil:
		e.Code, e.Message, e.Hint = "evidence_missing", "evidence is missing: "+missing.Error(),
			"see observation-health.json in the bundle"
	case failure != nil && failure.source == schema.SourceSandbox && res.Timings.ChildNS == nil &&
		r.spec.Contract == "":
		return // only the sandbox's own processes have run, and they are ending
	case n > 0:
		e.Code = "processes_escaped"
		e.Message = schema.Count(n, "process left the run's cgroup and was",
			"processes left the run's cgroup and were") +
			" still alive when the run ended: the bundle does not show what happened after that"
		e.Hint = "run the command as a user that cannot write to other cgroups"
	case r.witness.tampered() != "":
		e.Code, e.Message, e.Hint = "evidence_tampered", "the evidence was tampered with: "+r.witness.tampered(),
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
	*res.RunnerExitCode = schema.ExitRunner
}

// exitCode is the exit code for a command line.
func (r *run) exitCode(res *schema.Result, failure *runError) int {
	switch {
	case failure != nil:
		return failure.exit
	case res.Outcome == schema.OutcomeTimeout, res.Outcome == schema.OutcomeLimit:
		return schema.ExitTimeout
	}
	inside := res.Outcome == schema.OutcomeSignaled && !r.command.signals.passed[r.command.signal]
	exit := contract.Blame(res, r.command.exit, inside)
	if exit == 0 && res.Model != nil && res.Model.Replay != nil && res.Model.Replay.Misses > 0 {
		res.ErrorSource = new(string(schema.SourceRunner))
		res.Error = &schema.ResultError{
			Code: "model_replay_miss",
			Message: fmt.Sprintf("%s no answer in the replayed bundle: %s",
				schema.Count(res.Model.Replay.Misses, "request to a model had", "requests to models had"),
				res.Model.Replay.FirstMiss),
			Hint: "assay-run events --layer model shows the requests; if the agent has changed, record a run again",
		}
		return schema.ExitRunner
	}
	return exit
}
