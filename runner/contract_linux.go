package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/schema"
)

// gate is the outcome contract of a run. It is the executor of the contract's
// checks as well: each runs in a cgroup of its own of the run's session, with
// the agent's environment and under its limits. Only where an agent is to
// report (its logs, the socket for its tool calls) they are not told.
type gate struct {
	*contract.Gate
	run    *run
	checks layer.Checks // tells the kernel layer which cgroups are checks'
	doc    *schema.Contract
	err    error // the last failure to record contract.json

	// What the baseline used is not the agent's.
	usage  cgroup.Usage
	events cgroup.Events

	mu       sync.Mutex // below: shared with the goroutine that evaluates
	phase    contract.Phase
	group    *cgroup.Group // of the check that runs; nil between checks
	signaled string        // the signal that it was sent
}

// openContract reads the outcome contract before anything is started.
func (r *run) openContract() error {
	if r.spec.Contract == "" {
		return nil
	}
	g := &gate{run: r, phase: contract.Final}
	if r.spec.ContractBaseline {
		g.phase = contract.Baseline
	}
	dir, err := r.spec.workdir()
	if err == nil {
		g.Gate, err = contract.Open(contract.PrepareOptions{
			Path: r.spec.Contract, RunID: r.spec.RunID, Workdir: dir, TempDir: r.opt.ScratchDir,
			Baseline: r.spec.ContractBaseline, Executor: g,
			Options: contract.Options{Output: r.opt.Recorder.Create, Clock: r.rec.elapsed, Started: g.started, Completed: g.completed},
		})
	}
	if err != nil {
		e := schema.ResultError{Code: "contract_unusable", Message: err.Error(), Hint: "see assay-run contract validate " + r.spec.Contract}
		return &runError{source: schema.SourceContract, exit: ExitRunner, ResultError: e}
	}
	r.gate = g
	g.err = r.put(schema.ContractPath, g.Pending(interrupted))
	return nil
}

// interrupted is the reason in contract.json of a run that was killed.
const interrupted = "the runner ended before the contract was evaluated"

// prepareContract notes the state of the protected paths and evaluates the
// baseline. Nothing of the agent runs yet, so that one signal to end ends it.
func (r *run) prepareContract(ctx context.Context) error {
	g := r.gate
	if g == nil {
		return nil
	}
	err := g.attended(ctx, g.Prepare)
	g.phase = contract.Final
	if r.spec.ContractBaseline && err == nil {
		g.usage, g.events = r.session.Usage(), r.session.Events()
		_ = r.put(schema.ContractPath, g.Pending(interrupted)) // the one before it says no less
	}
	var end *interruption
	switch {
	case errors.As(err, &end):
		return &runError{source: schema.SourceRunner, exit: end.exit(), outcome: schema.OutcomeCancelled,
			ResultError: schema.ResultError{Code: "cancelled", Message: "while the contract's baseline was evaluated: " + err.Error()}}
	case err != nil:
		return &runError{source: schema.SourceContract, exit: ExitRunner,
			ResultError: schema.ResultError{Code: "contract_unusable", Message: err.Error()}}
	}
	return nil
}

// settleContract evaluates the contract, unless something kept the command
// from running or the run was cancelled. Nothing of the command is left.
func (r *run) settleContract(ctx context.Context, why error) {
	g := r.gate
	if g == nil || g.doc != nil {
		return
	}
	defer g.Release()
	reason := ""
	switch {
	case why != nil:
		reason = "the agent never ran: " + why.Error()
	case r.result.Outcome == schema.OutcomeCancelled:
		reason = "the run was cancelled"
	}
	settle := func(ctx context.Context) (err error) {
		g.doc, err = g.Settle(ctx, reason)
		return err
	}
	var err error
	if reason != "" {
		err = settle(ctx)
	} else {
		err = g.attended(ctx, settle)
	}
	if reason == "" && err != nil && (r.result.Outcome == schema.OutcomeExited || r.result.Outcome == schema.OutcomeSignaled) {
		r.result.Outcome = schema.OutcomeCancelled
	}
	g.noteEscapes()
	g.record()
	if r.opt.OnContract != nil {
		r.opt.OnContract(g.doc)
	}
}

// noteEscapes says when the checks may not have been alone: what is moved out
// of the session is not ended with the command.
func (g *gate) noteEscapes() {
	g.run.endObservation() // only then it has told all
	rep := g.run.kernelAccount.Report
	if rep == nil {
		return
	}
	if n := rep.LeftCgroup; n > 0 {
		g.doc.Reasons = append(g.doc.Reasons, fmt.Sprintf("tasks were moved out of the run's cgroup (%d): they may have been there while the checks ran", n))
	}
}

// judge turns the exit code of a command that succeeded into the contract's.
func (r *run) judge(exit int) int {
	if r.result.Contract == nil {
		return exit
	}
	verdict := *r.result.Contract
	code := contract.ExitCode(exit, verdict)
	if code == exit {
		return exit
	}
	source := schema.SourceContract
	e := schema.ResultError{Code: "contract_" + verdict, Message: "the outcome contract failed",
		Hint: "contract.json in the bundle has every check's result, and a command line that runs it by hand"}
	if verdict == schema.VerdictInconclusive {
		e.Message = "the outcome contract was inconclusive"
	}
	r.result.ErrorSource, r.result.Error = &source, &e
	return code
}

// record writes contract.json, on a full disk without the ends of the outputs.
// Where even that fails, the one that was written first stands.
func (g *gate) record() {
	pending := g.err == nil
	g.run.result.Contract = &g.doc.Verdict
	if g.err = g.run.put(schema.ContractPath, g.doc); g.err == nil {
		return
	}
	for _, results := range [][]schema.CheckResult{g.doc.Results, g.doc.Baseline} {
		for i := range results {
			results[i].OutputTail = ""
		}
	}
	if g.run.put(schema.ContractPath, g.doc) == nil {
		return
	}
	g.run.result.Contract = nil
	if pending {
		verdict := schema.VerdictInconclusive
		g.run.result.Contract = &verdict
	}
}

// cgroups tells which cgroups are checks'; nil without a contract.
func (g *gate) cgroups() *layer.Checks {
	if g == nil {
		return nil
	}
	return &g.checks
}

// recorded is why contract.json is missing or less than whole.
func (g *gate) recorded() error {
	if g == nil {
		return nil
	}
	return g.err
}

// discount takes off what the baseline used. A peak that was the baseline's
// says nothing about the command.
func (g *gate) discount(u *cgroup.Usage, e *cgroup.Events) {
	if g == nil {
		return
	}
	for _, n := range []struct{ total, before *int64 }{
		{u.CPUUserNS, g.usage.CPUUserNS}, {u.CPUSystemNS, g.usage.CPUSystemNS}, {u.IOReadBytes, g.usage.IOReadBytes},
		{u.IOWriteBytes, g.usage.IOWriteBytes}, {e.OOMKills, g.events.OOMKills}, {e.PidsMaxHits, g.events.PidsMaxHits},
	} {
		if n.total != nil && n.before != nil {
			*n.total = max(0, *n.total-*n.before)
		}
	}
	for _, p := range []struct {
		peak   **int64
		before *int64
	}{{&u.MemoryPeakBytes, g.usage.MemoryPeakBytes}, {&u.PidsPeak, g.usage.PidsPeak}} {
		if *p.peak != nil && p.before != nil && **p.peak <= *p.before {
			*p.peak = nil
		}
	}
}
