package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/place"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Target is what Attach observes.
type Target struct {
	// Tree is the cgroup. Attach closes it.
	Tree *tree.Tree
	// Attached is called once the kernel layer observes the tree. It may be nil.
	Attached func()
	// Sweeper frees the observer if this process is killed. If nil, Attach starts one.
	Sweeper *kernel.Sweeper
	// Exit is called at the end, and returns the exit code of a run whose evidence is complete. Nil means 0.
	Exit func() int
	// Trial follows an agent's attempt at a task in the tree; nil means that there is none.
	Trial Trial
}

// Trial is an agent's attempt at a task that somebody else runs.
type Trial interface {
	// Begin is called before the first line. keep writes what the agent must not do to the record, in case that this
	// process is killed.
	Begin(keep func(*schema.Evaluation))
	// See gets each line of the kernel layer, in order. It must not keep the event.
	See(*schema.KernelEvent)
	// Ended returns labels for the result, and what the agent must not do; nil if that is not known. It is called once,
	// after the last line.
	Ended() (labels map[string]string, evaluation *schema.Evaluation)
}

// Attach observes processes that somebody else starts and ends. It returns when the tree has no process left or ctx
// ends; the cause of ctx then says why. Attach contains nothing and ends nothing. It uses the fields of spec about
// observing and recording, and of the options Recorder, Redactor, ScratchDir, OnHealth and OnLoss. Result and error
// are as those of Run. If there is no kernel layer, Attach records only that, and does not wait.
func Attach(ctx context.Context, spec *specfile.Spec, target Target, opt Options) (*schema.Result, error) {
	a := newAttachment(spec, target, opt)
	a.log.Event(schema.Event{Type: schema.RunStarted, AgentShim: &spec.AgentShim, Command: spec.Command,
		EnvKeys: []string{}, WindowElapsedMS: new(int64)})
	err := a.open(context.WithoutCancel(ctx))
	if err == nil {
		a.attached()
		a.detached(a.wait(ctx))
	} else {
		a.log.Event(startFailed(err))
	}
	return a.finish(err)
}

// attachment is an Attach in progress.
type attachment struct {
	Target
	spec     *specfile.Spec
	log      *evidence.Log
	kernel   *observation
	own      *kernel.Sweeper // the one that Attach started, or nil
	began    time.Duration
	observed time.Duration // how long it observed
	why      string        // the reason code for detaching
	over     bool          // the engine says that the container has ended or is in another cgroup
	missed   bool          // processes may have used the directory earlier
	onHealth func(*schema.ObservationHealth)
}

func newAttachment(spec *specfile.Spec, target Target, opt Options) *attachment {
	a := &attachment{Target: target, spec: spec, onHealth: opt.OnHealth, log: evidence.New(evidence.Config{
		RunID: spec.RunID, Recorder: opt.Recorder, ScratchDir: opt.ScratchDir, Clock: bootTime, OnLoss: opt.OnLoss,
		Redactor: opt.Redactor,
	})}
	a.kernel = newObservation(a.log, spec, a, layer.Options{Foreign: true})
	if target.Trial != nil {
		a.kernel.showTo(target.Trial.See)
		target.Trial.Begin(func(e *schema.Evaluation) { _ = a.keep(e) }) // finish reports what cannot be written
	}
	return a
}

// keep writes what the agent must not do.
func (a *attachment) keep(e *schema.Evaluation) error {
	e.RunID = a.spec.RunID
	return a.log.Put(schema.EvaluationPath, e)
}

// open starts the kernel layer.
func (a *attachment) open(ctx context.Context) error {
	err := a.kernel.open(ctx)
	if err != nil && a.Tree.Again() {
		a.missed = true // processes of whoever removed the directory may have been missed
		err = a.kernel.open(ctx)
	}
	return err
}

// Path is the cgroup's directory. It lets an observation use the attachment as its session.
func (a *attachment) Path() string { return a.Tree.Path }

// explain adds a remedy for attach to the error of an observer that lacks permission.
func (a *attachment) explain(err error) error {
	var u *kernel.Unavailable
	if !errors.As(err, &u) {
		return err
	}
	fixed := &kernel.Unavailable{Reasons: slices.Clone(u.Reasons), Err: u.Err}
	for i := range fixed.Reasons {
		if r := &fixed.Reasons[i]; r.Code == kernel.CodeNotPermitted {
			r.Remedy = place.Here().Attach()
		}
	}
	return fixed
}

// shared makes a sweeper process free the observer's slot if this process is killed, since an attachment has no
// guard.
func (a *attachment) shared() {
	sweeper := a.Sweeper
	if sweeper == nil {
		a.own, _ = kernel.StartSweeper() // without a sweeper, the next run or recover frees it
		sweeper = a.own
	}
	sweeper.Remove(a.Tree.Directories()...)
}

func (a *attachment) attached() {
	a.began = bootTime()
	a.log.Event(schema.Event{Type: schema.Attached, Cgroup: a.Tree.Path,
		Count: int64(a.kernel.observer.Report().Present), Inherited: describedOf(a.kernel.held)})
	if a.Target.Attached != nil {
		a.Target.Attached()
	}
}

// wait waits until the observation ends, and returns the reason.
func (a *attachment) wait(ctx context.Context) (code, message string) {
	err := a.Tree.Wait(ctx, a.sawAny)
	switch {
	case err == nil:
		return "empty", "no process is left"
	case errors.Is(err, os.ErrNotExist):
		a.over = a.Tree.Made // an engine that uses a made directory removes it when the container ends
		return "removed", "the cgroup was removed"
	case ctx.Err() != nil:
		a.over = engine.Over(context.Cause(ctx))
		return "until", context.Cause(ctx).Error()
	}
	return "wait_failed", err.Error()
}

// sawAny reports whether the observer has seen a process in the tree.
func (a *attachment) sawAny() bool {
	r := a.kernel.observer.Report()
	return uint64(r.Present)+r.Kinds[schema.KindFork]+r.Kinds[schema.KindJoin] > 0
}

func (a *attachment) detached(code, message string) {
	a.observed, a.why = bootTime()-a.began, code
	a.log.Event(schema.Event{Type: schema.Detached, Cgroup: a.Tree.Path, Code: code, Message: message})
}

// finish writes the documents. failure is why nothing was observed, or nil.
func (a *attachment) finish(failure error) (*schema.Result, error) {
	res := &schema.Result{
		Schema: schema.ResultV0, RunID: a.spec.RunID, Outcome: schema.OutcomeDetached,
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone}, Labels: a.spec.Labels,
		RunnerExitCode: new(int),
	}
	if failure != nil {
		*res.RunnerExitCode = failed(res, failure).exit
	} else {
		res.Timings.ChildNS = new(int64(a.observed))
	}
	missing := a.kernel.close(res)
	a.kernel.free()
	if a.Trial != nil {
		labels, e := a.Trial.Ended()
		res.Labels = maps.Clone(a.spec.Labels)
		maps.Copy(res.Labels, labels)
		if e != nil {
			missing = errors.Join(missing, a.keep(e))
		}
	}
	res.Usage.Processes = nil // the count lacks the processes that were already there
	err := a.log.Finish(evidence.Findings{
		Result: res, Success: failure == nil, Calls: evidence.NewCalls(a.log, binding.Options{}),
		Observed: a.kernel.observed(), Correlation: a.kernel.correlation(), Unobserved: "nothing was recorded",
		Health: a.health, Missing: missing,
		Settle: func(h *schema.ObservationHealth, missing error) { a.settle(res, h, missing, failure) },
	})
	err = errors.Join(err, a.Tree.Close())
	_ = a.own.Close()
	return res, err
}

// settle sets the exit code. It is ExitRunner if evidence is missing, was tampered with, or does not meet the spec's
// requirements.
func (a *attachment) settle(res *schema.Result, h *schema.ObservationHealth, missing error, failure error) {
	if a.onHealth != nil {
		a.onHealth(h)
		a.onHealth = nil
	}
	e := unmet(a.spec.Require, specfile.KernelAuto, h)
	switch {
	case failure != nil:
		return
	case missing != nil:
		e = &schema.ResultError{Code: "evidence_missing", Message: "evidence is missing: " + missing.Error(),
			Hint: "see observation-health.json in the bundle"}
	case a.kernel.tampered() != "":
		e = &schema.ResultError{Code: "evidence_tampered", Message: "the evidence was tampered with: " +
			a.kernel.tampered()}
	case e == nil:
		if a.Exit != nil {
			*res.RunnerExitCode = a.Exit()
		}
		return
	}
	source := schema.SourceRunner
	res.ErrorSource, res.Error, *res.RunnerExitCode = &source, e, schema.ExitRunner
}

// health adds to the kernel layer's health that nothing was contained, and whether processes were missed.
func (a *attachment) health(h *schema.ObservationHealth) {
	a.kernel.health(h)
	h.Reasons = append(h.Reasons, schema.Reason{
		Subject: "containment", Code: "attached",
		Message: fmt.Sprintf("assay-run attached to %s, which somebody else made: it contained and ended nothing",
			a.Tree.Path),
	})
	var unseen *schema.Reason
	switch {
	case a.why == "wait_failed":
		unseen = &schema.Reason{Code: a.why, Message: "assay-run detached because it could not watch the cgroup"}
	case a.missed:
		unseen = &schema.Reason{Code: kernel.CodeAttachedLate,
			Message: "the cgroup was removed and made again before assay-run attached: what ran in it until " +
				"then was not recorded"}
	case a.over && a.kernel.observer != nil && !a.sawAny():
		unseen = &schema.Reason{Code: kernel.CodeAttachedLate,
			Message: "assay-run saw no process of the container, which has ended or is in another cgroup: what it " +
				"did was not recorded"}
	}
	if unseen != nil {
		unseen.Subject = "kernel"
		h.Reasons = append(h.Reasons, *unseen)
		h.SetKernelLayer(schema.PartialRingbufDrops)
		h.NetworkEndpointClaimScope = schema.DiagnosticOnly
	}
}
