package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Spool stores the evidence of one run until it is sealed.
type Spool interface {
	runner.Recorder
	// Dir is the directory of the members, which have their paths in the bundle.
	Dir() string
	// Begin makes the file of a layer without lines.
	Begin(layer string) error
	// Redact makes Seal search again for the secrets that a redactor knows.
	Redact(*redact.Redactor)
	// Seal makes the bundle and returns its path.
	Seal(ctx context.Context) (string, error)
	// Close releases what Seal has not.
	Close() error
}

// Config configures Runs.
type Config struct {
	// Dir is an absolute path. A run has its live record in Dir/<agent_id>/<run_id>.jsonl and its bundle next to it.
	Dir string
	// Program is the program and version that run.json names as the recorder.
	Program string
	// Turns configures how calls become turns.
	Turns specfile.Turns
	// Spool makes the spool of a new run, on the file system of Dir. It is called concurrently.
	Spool func(run schema.Run) (Spool, error)
	// Redactor makes the redactor of a run. It is called concurrently. If it or its result is nil, secrets are
	// recorded.
	Redactor func(runID string) (*redact.Redactor, error)
}

// Runs are the runs that agents open. Its methods are safe for concurrent use.
type Runs struct {
	cfg  Config
	mu   sync.Mutex
	open map[string]*run // by run id
}

// New returns Runs without an open run.
func New(cfg Config) *Runs { return &Runs{cfg: cfg, open: map[string]*run{}} }

// Bind makes a gateway open and seal its runs here.
func (r *Runs) Bind(cfg *gateway.Config) {
	cfg.Open, cfg.Seal, cfg.Suspend, cfg.Observe, cfg.Turns = r.Open, r.Seal, r.suspend, r.observe,
		r.cfg.Turns
}

// run is an open served run.
type run struct {
	spool Spool
	log   *evidence.Log
	calls *evidence.Calls
	// resumed means that an earlier serve recorded its start.
	resumed bool
}

// Open makes the spool and the live record of a new run.
func (r *Runs) Open(_ context.Context, start gateway.Start) (_ gateway.Recording, err error) {
	home := filepath.Join(r.cfg.Dir, start.AgentID)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return gateway.Recording{}, err
	}
	spec := r.spec(start)
	record, err := runner.Record(spec, time.Now(), r.cfg.Program, filepath.Join(home, spec.RunID+".tar.gz"), nil)
	if err != nil {
		return gateway.Recording{}, err
	}
	record.Applied = nil // the gateway's clients are under nothing of its own
	redactor, err := r.redactor(spec.RunID)
	if err != nil {
		return gateway.Recording{}, err
	}
	if redactor == nil {
		record.Redaction = schema.RedactionDisabled
	}
	spool, err := r.cfg.Spool(record)
	if err != nil {
		return gateway.Recording{}, err
	}
	defer func() {
		if err != nil {
			spool.Close()
			os.RemoveAll(spool.Dir())
		}
	}()
	spool.Redact(redactor)
	live := filepath.Join(home, spec.RunID+".jsonl")
	if err := linkTurns(spool, live); err != nil {
		return gateway.Recording{}, err
	}
	log := evidence.New(
		evidence.Config{
			RunID: spec.RunID, Recorder: spool, ScratchDir: spool.Dir(), Clock: gateway.BootTime, Redactor: redactor,
		},
	)
	log.Event(schema.Event{
		Type: schema.RunStarted, AgentShim: &spec.AgentShim, Command: spec.Command, EnvKeys: []string{},
		WindowElapsedMS: new(int64),
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[spec.RunID] = &run{spool: spool, log: log, calls: evidence.NewCalls(log, binding.Options{})}
	return gateway.Recording{RunID: spec.RunID, Recorder: log.Recorder, TurnsFile: live}, nil
}

func (r *Runs) redactor(runID string) (*redact.Redactor, error) {
	if r.cfg.Redactor == nil {
		return nil, nil
	}
	return r.cfg.Redactor(runID)
}

// spec describes a run without a command.
func (r *Runs) spec(start gateway.Start) *specfile.Spec {
	spec := specfile.New("assay-run", "serve")
	spec.Capture, spec.CaptureBytes, spec.Kernel = false, 0, specfile.KernelOff
	spec.Gateway, spec.Turns = "", r.cfg.Turns
	spec.Labels = map[string]string{"agent_id": start.AgentID}
	return spec
}

// linkTurns gives the file of a spool's turns a second name.
func linkTurns(spool Spool, live string) error {
	if err := spool.Begin(schema.TurnsPath); err != nil {
		return err
	}
	if err := os.Link(filepath.Join(spool.Dir(), filepath.FromSlash(schema.TurnsPath)), live); err != nil {
		return fmt.Errorf("link the live record to the spool: %w", err)
	}
	return nil
}

// observe returns the observer of a run's calls.
func (r *Runs) observe(rec gateway.Recording) gateway.Observer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.open[rec.RunID]; run != nil {
		return run.calls
	}
	return nil
}

// Seal ends a run and makes its bundle.
func (r *Runs) Seal(ctx context.Context, rec gateway.Recording, session schema.GatewaySession) (string, error) {
	run, err := r.take(rec.RunID)
	if err != nil {
		return "", err
	}
	defer run.spool.Close()
	err = run.log.Finish(evidence.Findings{
		Result: result(rec.RunID, session), Success: strings.EqualFold(session.Outcome, "success"), Calls: run.calls,
		Unobserved: "the run reported to assay-run serve, which observes no processes",
		Health:     func(h *schema.ObservationHealth) { run.health(h, session.Cut) },
	})
	bundle, serr := run.spool.Seal(ctx)
	return bundle, errors.Join(err, serr)
}

// result has no exit code and no command timings, since there was no command.
func result(runID string, session schema.GatewaySession) *schema.Result {
	res := &schema.Result{
		Schema: schema.ResultV0, RunID: runID, Outcome: schema.OutcomeReported,
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone},
	}
	if session.Outcome == "" {
		source := schema.SourceRunner
		res.Outcome, res.ErrorSource = schema.OutcomeIncomplete, &source
		res.Error = &schema.ResultError{Code: "client_vanished", Message: "no client completed the run"}
	}
	return res
}

// take removes the open run with the id, and returns it.
func (r *Runs) take(id string) (*run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.open[id]
	if run == nil {
		return nil, fmt.Errorf("run %s is not open", id)
	}
	delete(r.open, id)
	return run, nil
}

func (r *run) health(h *schema.ObservationHealth, cut uint64) {
	if cut > 0 {
		h.Reasons = append(h.Reasons, schema.CutReason(cut))
	}
	h.Reasons = append(h.Reasons, schema.Reason{
		Subject: "kernel", Code: "not_started_here",
		Message: "the agent was not started by assay-run, so nothing of it was observed",
		Remedy:  "start it with assay-run -- CMD",
	})
	if r.resumed {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "run", Code: "recorder_restarted",
			Message: "assay-run serve ended and was started again while the run was open; calls in flight at that " +
				"moment have the outcome callback_lost",
		})
	}
}

// Resume continues a run that an earlier serve left open: clients of g may reconnect to it. After an error the spool
// is closed, and can still be sealed.
func (r *Runs) Resume(g *gateway.Gateway, spool Spool, record schema.Run) (err error) {
	defer func() {
		if err != nil {
			r.take(record.RunID)
			spool.Close()
		}
	}()
	started, err := time.Parse(time.RFC3339Nano, record.StartedAt)
	if err != nil {
		return err
	}
	// The clock of the lines never goes back, even if the wall clock did.
	elapsed := max(time.Since(started.Round(0)), 1)
	err = recording.EachLine(spool.Dir(), schema.EventsPath, func(line []byte) error {
		var e schema.Event
		err := json.Unmarshal(line, &e)
		elapsed = max(elapsed, time.Duration(e.TNS)+1)
		return err
	})
	if err != nil {
		return err
	}
	var redactor *redact.Redactor
	if record.Redaction != schema.RedactionDisabled {
		if redactor, err = r.redactor(record.RunID); err != nil {
			return err
		}
	}
	spool.Redact(redactor)
	log := evidence.New(evidence.Config{
		Redactor: redactor, RunID: record.RunID, Recorder: spool, ScratchDir: spool.Dir(), Clock: gateway.BootTime,
		Elapsed: elapsed,
	})
	calls := evidence.NewCalls(log, binding.Options{})
	if err := retell(calls, spool.Dir()); err != nil {
		return err
	}
	r.mu.Lock()
	r.open[record.RunID] = &run{spool: spool, log: log, calls: calls, resumed: true}
	r.mu.Unlock()
	live := filepath.Join(filepath.Dir(record.Output), record.RunID+".jsonl")
	return g.Resume(gateway.Recording{RunID: record.RunID, Recorder: log.Recorder, TurnsFile: live}, spool.Dir(),
		elapsed)
}

// retell passes on the recorded calls.
func retell(calls *evidence.Calls, dir string) error {
	err := recording.EachLine(dir, schema.PolicyPath, func(line []byte) error {
		var e schema.PolicyEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		calls.CallDecided(e.ToolCallID, e.Tool, e.Decision)
		return nil
	})
	if err != nil {
		return err
	}
	return recording.EachLine(dir, schema.TurnsPath, func(line []byte) error {
		var t schema.Turn
		if err := json.Unmarshal(line, &t); err != nil {
			return err
		}
		switch {
		case t.ToolCallID == "":
		case t.Source == "reported" && t.RejectedBy == "":
			calls.CallReported(t.ToolCallID, t.Tool, t.PolicyRejected != nil)
		case t.RejectedBy == "" && !t.DryRun:
			calls.Begin(t.ToolCallID, t.Tool, 0, func() int64 { return t.TStartNS })
			calls.End(t.ToolCallID, func() int64 { return t.TEndNS })
		}
		return nil
	})
}

// suspend releases a run that a later serve may continue.
func (r *Runs) suspend(rec gateway.Recording) error {
	run, err := r.take(rec.RunID)
	if err != nil {
		return err
	}
	return run.spool.Close()
}
