package runner

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// Run runs the command of spec and leaves every artifact of the run with the
// recorder. The Result is what result.json says and never nil, also when the
// command could not be started; its RunnerExitCode is what a command line
// should exit with. The error tells of evidence that could not be recorded:
// the layers then count what is missing, but the process should not exit 0.
//
// Cancelling ctx ends the run as a timeout does, with the outcome cancelled.
// On return nothing of the run is left: no process, cgroup or descriptor.
func Run(ctx context.Context, spec *Spec, opt Options) (*schema.Result, error) {
	spec.Preload()
	r := newRun(spec, opt)
	defer r.release()

	r.recordStart()
	if err := r.openContract(); err != nil {
		return r.finish(err)
	}
	if err := r.contain(); err != nil {
		return r.finish(err)
	}
	if err := r.openAgent(); err != nil {
		return r.finish(err)
	}
	if err := r.observe(ctx); err != nil {
		return r.finish(err)
	}
	if r.opt.Ready != nil {
		r.opt.Ready()
	}
	if err := r.prepareContract(ctx); err != nil {
		return r.finish(err)
	}
	if err := r.openStdio(); err != nil {
		return r.finish(err)
	}
	if err := r.start(); err != nil {
		return r.finish(err)
	}
	r.supervise(ctx)
	r.account()
	r.settleContract(ctx, nil)
	return r.finish(r.lost)
}

// run is a run in progress. It belongs to the goroutine of Run; only the
// recorder is shared.
type run struct {
	spec *Spec
	opt  Options
	rec  *lifecycle

	began, started time.Duration // the run and its command, on the boot clock

	session *cgroup.Session
	agent   *cgroup.Group
	guard   *cgroup.Guard
	streams *stdio.Streams
	cmd     *exec.Cmd
	job     *cgroup.Job // nil but on a terminal of the command's own
	lost    error       // how the command ended cannot be told

	observation   *observation // nil when the kernel layer is off or absent
	unobserved    error        // why it is absent
	surface       *surface.Builder
	kernelAccount layer.Account

	agentSide *agentSide // nil until it is open

	gate      *gate // nil without an outcome contract
	interrupt bool  // a SIGINT or SIGTERM was forwarded

	streamMu      sync.Mutex
	streamReasons []schema.Reason

	result   schema.Result
	reasons  []schema.Reason
	exit     exitState
	released bool
}

func newRun(spec *Spec, opt Options) *run {
	if opt.Host == nil {
		opt.Host = cgroup.Probe()
	}
	r := &run{spec: spec, opt: opt, began: bootTime()}
	r.rec = newLifecycle(spec.RunID, opt.Recorder)
	r.surface = surface.New(spec.RunID, opt.ScratchDir)
	r.result = schema.Result{
		Schema: schema.ResultV0, RunID: spec.RunID, Outcome: schema.OutcomeInfraError,
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone},
		Limits: schema.Limits{
			MemoryBytes: spec.Limits.MemoryBytes, Pids: spec.Limits.Pids, CPUMilli: spec.Limits.CPUMilli,
		},
	}
	return r
}

func (r *run) recordStart() {
	shim, zero := r.spec.AgentShim, int64(0)
	keys := sortedKeys(r.spec.Env)
	r.rec.event(schema.Event{
		Type: schema.RunStarted, AgentShim: &shim, Command: r.spec.Command, EnvKeys: keys, WindowElapsedMS: &zero,
	})
}

// contain makes the session cgroup and the guard that outlives us.
func (r *run) contain() error {
	if _, err := r.opt.Host.Sweep(); err != nil {
		r.reasons = append(r.reasons, schema.Reason{
			Subject: "cgroup", Code: "sweep_failed", Message: fmt.Sprintf("sessions of dead runners could not be removed: %v", err),
		})
	}
	l := r.spec.Limits
	session, err := r.opt.Host.NewSession(r.spec.RunID, cgroup.Limits{
		MemoryBytes: l.MemoryBytes, Pids: l.Pids, CPUMilli: l.CPUMilli, BestEffort: l.BestEffort,
	})
	if err != nil {
		e := schema.ResultError{Code: "containment_failed", Message: err.Error()}
		var limit *cgroup.LimitError
		if errors.As(err, &limit) {
			e.Code, e.Hint = "limit_unenforceable", limit.Remedy+"; or allow it with --best-effort-limits"
		}
		if r.opt.Host.Usable() != nil {
			e.Code, e.Hint = "proc_unusable", remedyProc
		}
		if errors.Is(err, cgroup.ErrInUse) {
			e.Code, e.Hint = "run_id_in_use", "wait for that run to end, or choose another --run-id"
		}
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: e}
	}
	r.session, r.agent = session, session.Agent()
	r.result.Limits.Unenforced = session.Unenforced()
	for _, name := range session.Unenforced() {
		r.reasons = append(r.reasons, schema.Reason{
			Subject: "limits", Code: "limit_unenforced",
			Message: fmt.Sprintf("the %s limit was asked for and not enforced", name),
			Remedy:  "run assay-run doctor to see what enforcing it needs",
		})
	}
	for _, c := range r.opt.Host.Controllers() {
		if c.Name == "memory" && l.MemoryBytes > 0 && c.Available && c.Remedy != "" {
			r.reasons = append(r.reasons, caveat(c))
		}
	}
	r.reasons = append(r.reasons, hostReasons(r.opt.Host)...)
	if r.guard, err = session.Guard(r.terminal()); err != nil {
		return sandboxError("guard_failed", fmt.Errorf("start the guard process: %w", err))
	}
	return nil
}

func (r *run) openStdio() error {
	streams, err := stdio.Open(stdio.Config{
		Stdin: r.opt.Stdin, Stdout: r.opt.Stdout, Stderr: r.opt.Stderr,
		Capture: !r.spec.NoCapture, CaptureBytes: r.spec.CaptureBytes,
		Create:   r.opt.Recorder.Create,
		Settings: r.guard.TerminalChanged,
		OnTruncate: func(stream string, at int64) {
			r.rec.event(schema.Event{Type: schema.CaptureTruncated, Stream: stream, Bytes: at})
		},
		OnError: r.streamFailed,
	})
	if err != nil {
		return sandboxError("stdio_failed", err)
	}
	r.streams = streams
	return nil
}

// streamFailed is told by the goroutines that copy.
func (r *run) streamFailed(stream string, err error) {
	reason := schema.Reason{
		Subject: "stdio", Code: "capture_failed", Message: fmt.Sprintf("the copy of %s is not whole: %v", stream, err),
		Remedy: "make room on the disk that holds the spool",
	}
	if errors.Is(err, stdio.ErrOutput) {
		reason.Code, reason.Remedy = "output_failed", "make room where the command's output goes"
		reason.Message = fmt.Sprintf("%v; the command could not write to %s any more (EPIPE)", err, stream)
		if r.opt.OnOutputError != nil {
			r.opt.OnOutputError(stream, err)
		}
	}
	r.rec.event(schema.Event{Type: schema.RecorderError, Stream: stream, Code: reason.Code, Message: err.Error()})
	if reason.Code == "capture_failed" {
		r.lose(reason)
	}
	r.streamMu.Lock()
	defer r.streamMu.Unlock()
	r.streamReasons = append(r.streamReasons, reason)
}

// lose tells the caller of evidence that is missing.
func (r *run) lose(reason schema.Reason) {
	if r.opt.OnLoss != nil {
		r.opt.OnLoss(reason)
	}
}

// account takes in the kernel's counters of the processes that are gone.
func (r *run) account() {
	u := r.session.Usage()
	ev := r.session.Events()
	r.gate.discount(&u, &ev)
	r.result.Usage = schema.Usage{
		CPUUserNS: u.CPUUserNS, CPUSystemNS: u.CPUSystemNS, MemoryPeakBytes: u.MemoryPeakBytes,
		PidsPeak: u.PidsPeak, IOReadBytes: u.IOReadBytes, IOWriteBytes: u.IOWriteBytes,
		OOMKills: ev.OOMKills,
	}
	if n := ev.OOMKills; n != nil && *n > 0 {
		r.result.LimitsHit = append(r.result.LimitsHit, "memory")
		r.rec.event(schema.Event{Type: schema.OOMKill, Limit: "memory", Count: *n})
		if r.exit.signal == "SIGKILL" && r.result.Outcome == schema.OutcomeSignaled {
			r.result.Outcome = schema.OutcomeOOM
		}
	}
	if n := ev.PidsMaxHits; n != nil && *n > 0 {
		r.result.LimitsHit = append(r.result.LimitsHit, "pids")
		r.rec.event(schema.Event{Type: schema.LimitHit, Limit: "pids", Count: *n})
	}
}

// processes is how many processes the command started in all: only the kernel
// layer has seen them all.
func (r *run) processes() *int64 {
	if r.kernelAccount.Report == nil {
		return nil
	}
	n := int64(r.kernelAccount.Stats.Forks - r.kernelAccount.Stats.CheckForks)
	return &n
}

// release gives back what the run holds of the host, and is done once: the
// guard goes last, so that it covers everything before it.
func (r *run) release() {
	r.endObservation()
	r.endAgent()
	if r.streams != nil {
		r.streams.Abort()
		r.result.Stdio = r.streams.Finish(0)
		r.reasons, r.streamReasons = append(r.reasons, r.streamReasons...), nil // nobody copies any more
	}
	if r.job != nil {
		r.job.Close()
	}
	if r.session != nil && !r.released {
		r.released = true
		if err := r.session.Remove(); err != nil {
			r.reasons = append(r.reasons, schema.Reason{
				Subject: "cgroup", Code: "cgroup_left", Message: err.Error(),
				Remedy: "the next run on this host sweeps it",
			})
		}
		if r.guard != nil {
			r.guard.Release()
		}
	}
}

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
