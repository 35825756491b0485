package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// contractPart is the outcome contract of a run. It is opened first, so that a
// bad contract starts nothing, and closed last, when it is known whether the
// checks were alone. Without a contract it does nothing.
type contractPart struct {
	log      *evidence.Log
	file     string // empty without a contract
	baseline bool
	dir      func() (string, error) // the run's working directory
	temp     string
	told     func(*schema.Contract) // may be nil
	// escaped is how many tasks were moved out of the session. It is asked once
	// the observation has ended. atLarge is how many of its processes are alive.
	escaped  func() uint64
	atLarge  func() int
	touched  *influence                          // what checks read of the command's
	tampered func() string                       // how the evidence was; asked with escaped
	confine  func(contract.Group) contract.Group // into the agent's sandbox
	strict   *strictChecks                       // nil where checks are not strict
	strictly func(fresh string) func(contract.Group) contract.Group
	user     func() *sandbox.User       // who checks run as; nil for us
	complete func() bool                // whether the kernel layer has all that was read; asked with escaped
	permit   func(command string) error // what the policy says of a check

	*checks // the executor of the checks; nil until the contract is open
	env     []string
	signals *inbox
	grace   time.Duration
	session *containment
	marked  layer.Checks // tells the kernel layer which cgroups are checks'

	gate        *contract.Gate
	evaluating  atomic.Bool      // the baseline
	doc         *schema.Contract // nil until it is settled
	interrupted bool             // the evaluation was ended early
	watched     int              // how many processes were alive when it began
	err         error            // the last failure to record contract.json
}

func newContract(log *evidence.Log, opt Options, spec *Spec, signals *inbox, session *containment) *contractPart {
	return &contractPart{
		log: log, file: spec.Contract, baseline: spec.ContractBaseline, dir: spec.workdir, temp: opt.ScratchDir, told: opt.OnContract,
		env: spec.environ(), signals: signals, grace: spec.Grace, session: session,
	}
}

// marks tell which cgroups are checks'; nil without a contract.
func (p *contractPart) marks() *layer.Checks {
	if p.file == "" {
		return nil
	}
	return &p.marked
}

// open reads the contract before anything is started.
func (p *contractPart) open(context.Context) error {
	if p.file == "" {
		return nil
	}
	dir, err := p.dir()
	if err == nil {
		p.checks = &checks{log: p.log, dir: dir, env: p.env, signals: p.signals, grace: p.grace, session: p.session, confine: p.confine, strict: p.strict, within: p.strictly, permit: p.permit, marked: &p.marked, phase: contract.Final}
		if p.baseline {
			p.phase = contract.Baseline
		}
		p.gate, err = contract.Open(contract.PrepareOptions{
			Path: p.file, RunID: p.log.RunID, Workdir: dir, TempDir: p.temp, Baseline: p.baseline, Executor: p.checks,
			Options: contract.Options{Output: p.log.Recorder.Create, Pieces: func() *redact.Pieces { return p.log.Redactor.Pieces(schema.ContractPath) }, Clock: p.log.Elapsed, Started: p.started, Completed: p.completed},
		})
	}
	if err != nil {
		e := schema.ResultError{Code: "contract_unusable", Message: err.Error(), Hint: "see assay-run contract validate " + p.file}
		return &runError{source: schema.SourceContract, exit: ExitRunner, ResultError: e}
	}
	p.err = p.log.Put(schema.ContractPath, p.pending())
	return nil
}

// killed is the reason in contract.json of a run that was killed.
const killed = "the runner ended before the contract was evaluated"

func (p *contractPart) pending() *schema.Contract {
	doc := p.gate.Pending(killed)
	doc.StrictChecks = p.strict != nil
	return doc
}

// hear passes a signal on to the check of the baseline that runs. It reports whether one may run.
func (p *contractPart) hear(sig os.Signal) bool {
	if !p.evaluating.Load() {
		return false
	}
	p.signal(sig, nil)
	return true
}

// prepare notes the state of the protected paths and evaluates the baseline, which the end of
// ctx ends.
func (p *contractPart) prepare(ctx context.Context) error {
	if p.gate == nil {
		return nil
	}
	p.evaluating.Store(p.baseline)
	err := p.gate.Prepare(ctx)
	p.evaluating.Store(false)
	p.phase = contract.Final
	if p.baseline && err == nil {
		p.session.startAccount()
		_ = p.log.Put(schema.ContractPath, p.pending()) // the one before it says no less
	}
	var end *interruption
	switch {
	case err != nil && errors.As(context.Cause(ctx), &end):
		return end.failure("while the contract's baseline was evaluated: " + end.Error())
	case err != nil:
		return &runError{source: schema.SourceContract, exit: ExitRunner,
			ResultError: schema.ResultError{Code: "contract_unusable", Message: err.Error()}}
	}
	return nil
}

// settle evaluates the contract once nothing of the command is left, unless the
// run was cancelled. survived tells who is left: then no check runs.
func (p *contractPart) settle(ctx context.Context, outcome, survived string) {
	if p.gate == nil {
		return
	}
	p.session.accounted()
	switch {
	case survived != "":
		p.doc, _ = p.gate.Settle(ctx, survived)
	case outcome == schema.OutcomeCancelled:
		p.doc, _ = p.gate.Settle(ctx, "the run was cancelled")
	default:
		p.watched = p.atLarge()
		err := p.attended(ctx, func(ctx context.Context) (err error) {
			p.doc, err = p.gate.Settle(ctx, "")
			return err
		})
		p.interrupted = err != nil
	}
}

// close records the verdict. Without one the command never ran.
func (p *contractPart) close(res *schema.Result) error {
	if p.gate == nil {
		return nil
	}
	defer p.gate.Release()
	p.strict.end()
	if p.doc == nil {
		p.doc, _ = p.gate.Settle(context.Background(), "the agent never ran: "+res.Error.Message)
	}
	p.doc.StrictChecks = p.strict != nil
	if u := p.user(); u != nil {
		p.doc.ChecksUID = &u.UID
	}
	if p.interrupted && (res.Outcome == schema.OutcomeExited || res.Outcome == schema.OutcomeSignaled) {
		res.Outcome = schema.OutcomeCancelled
	}
	if n := p.escaped(); n > 0 { // what is moved out of the session is not ended with the command
		p.doc.Reasons = append(p.doc.Reasons, fmt.Sprintf("tasks were moved out of the run's cgroup (%d): they may have been there while the checks ran", n))
	}
	if n := max(p.watched, p.atLarge()); n > 0 {
		p.doc.Doubt(fmt.Sprintf("processes of the agent (%d) were alive while the checks ran, so that the checks prove nothing", n))
	}
	if what := p.tampered(); what != "" {
		p.doc.Doubt("the evidence was tampered with, so no verdict holds: " + what)
	}
	if p.touched != nil {
		p.touched.tell(p.doc, p.gate.Protects, p.checks.dir, p.strict)
	}
	if p.strict != nil && !p.complete() {
		p.doc.Reasons = append(p.doc.Reasons, "the kernel layer is not complete, so a strict check may have read what the command wrote")
	}
	p.record(res)
	if p.told != nil {
		p.told(p.doc)
	}
	return p.err
}

func (p *contractPart) health(*schema.ObservationHealth) {}

// record writes contract.json, on a full disk without the ends of the outputs.
// Where even that fails, the one that was written first stands.
func (p *contractPart) record(res *schema.Result) {
	pending := p.err == nil
	res.Contract, res.Checks = &p.doc.Verdict, p.doc.Summaries()
	if p.err = p.log.Put(schema.ContractPath, p.doc); p.err == nil {
		return
	}
	for _, results := range [][]schema.CheckResult{p.doc.Results, p.doc.Baseline} {
		for i := range results {
			results[i].OutputTail = ""
		}
	}
	if p.log.Put(schema.ContractPath, p.doc) == nil {
		return
	}
	res.Contract, res.Checks = nil, nil
	if pending {
		verdict := schema.VerdictInconclusive
		res.Contract = &verdict
	}
}

// judge turns the exit code of a command that succeeded into the contract's. A
// contract that was not passed is an error of the result as well. inside tells
// that a signal from inside of the run ended the command.
func judge(res *schema.Result, exit int, inside bool) int {
	if res.Contract == nil {
		return exit
	}
	verdict := *res.Contract
	code := contract.ExitCode(exit, verdict, inside)
	if code == exit {
		return exit
	}
	source := schema.SourceContract
	e := schema.ResultError{Code: "contract_" + verdict, Message: "the outcome contract failed",
		Hint: "contract.json in the bundle has every check's result, and a command line that runs it by hand"}
	if verdict == schema.VerdictInconclusive {
		e.Message = "the outcome contract was inconclusive"
	}
	res.ErrorSource, res.Error = &source, &e
	return code
}
