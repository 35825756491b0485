package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// servedRuns keeps the runs of serve: each in a spool below dir/.spool, whose
// turns are also the live record, by a hard link, and then in a bundle.
type servedRuns struct {
	dir      string
	recorder string
	turns    runner.Turns
}

// servedSpool is a run's spool and when it began.
type servedSpool struct {
	*archive.Spool
	began time.Duration
}

func (s *servedRuns) spoolDir() string { return filepath.Join(s.dir, ".spool") }

// recover seals what a killed serve left.
func (s *servedRuns) recover(ctx context.Context, warn func(string, ...any)) error {
	if err := os.MkdirAll(s.spoolDir(), 0o700); err != nil {
		return withHint(err, "choose another directory with --dir")
	}
	spools, err := archive.ListSpools(s.spoolDir())
	if err != nil {
		return err
	}
	for _, info := range spools {
		if info.Alive {
			continue
		}
		sealed, err := archive.Recover(ctx, s.spoolDir(), info.RunID, archive.RecoverOptions{})
		if err != nil {
			warn("the interrupted run %s is kept in %s: %v", info.RunID, s.spoolDir(), err)
			continue
		}
		warn("the interrupted run %s is sealed as incomplete: %s", info.RunID, sealed.Path)
	}
	return nil
}

// open makes the spool and the live record of a new run.
func (s *servedRuns) open(_ context.Context, start gateway.Start) (_ gateway.Recording, err error) {
	spec := runner.New("assay-run", "serve")
	spec.Capture, spec.CaptureBytes, spec.Kernel = false, 0, runner.KernelOff
	spec.Gateway, spec.Turns = "", s.turns
	spec.Labels = map[string]string{"agent_id": start.AgentID}
	home := filepath.Join(s.dir, start.AgentID)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return gateway.Recording{}, err
	}
	record, err := spec.Record(time.Now(), s.recorder, filepath.Join(home, spec.RunID+".tar.gz"))
	if err != nil {
		return gateway.Recording{}, err
	}
	spool, err := archive.CreateSpool(s.spoolDir(), record)
	if err != nil {
		return gateway.Recording{}, err
	}
	defer func() {
		if err != nil {
			spool.Close()
			os.RemoveAll(spool.Dir())
		}
	}()
	live := filepath.Join(home, spec.RunID+".jsonl")
	turns := filepath.Join(spool.Dir(), filepath.FromSlash(schema.TurnsPath))
	if err := os.MkdirAll(filepath.Dir(turns), 0o700); err != nil {
		return gateway.Recording{}, err
	}
	if err := os.WriteFile(turns, nil, 0o600); err != nil {
		return gateway.Recording{}, err
	}
	if err := os.Link(turns, live); err != nil {
		return gateway.Recording{}, fmt.Errorf("link the live record to the spool: %w", err)
	}
	own := &servedSpool{Spool: spool, began: gateway.BootTime()}
	shim, zero := runner.ShimNone, int64(0)
	if err := own.event(schema.Event{Type: schema.RunStarted, RunID: spec.RunID, AgentShim: &shim, Command: record.Command, EnvKeys: []string{}, WindowElapsedMS: &zero}); err != nil {
		return gateway.Recording{}, err
	}
	return gateway.Recording{RunID: spec.RunID, Recorder: own, TurnsFile: live}, nil
}

// event appends a lifecycle event.
func (s *servedSpool) event(e schema.Event) error {
	e.Schema, e.TNS = schema.EventV0, int64(gateway.BootTime()-s.began)
	return s.Append(schema.EventsPath, func(dst []byte, seq uint64) []byte {
		e.Seq = seq
		line, err := schema.Line(&e)
		if err != nil {
			return dst // plain data always encodes
		}
		return append(dst, line[:len(line)-1]...)
	})
}

// seal ends a run and makes its bundle.
func (s *servedRuns) seal(ctx context.Context, rec gateway.Recording, session schema.GatewaySession) (string, error) {
	spool := rec.Recorder.(*servedSpool)
	defer spool.Close()
	no, elapsed := false, (gateway.BootTime() - spool.began).Milliseconds()
	err := spool.event(schema.Event{
		Type: schema.RunFinished, RunID: rec.RunID, ExitCode: schema.None[int](), Signal: schema.None[schema.SignalNumber](),
		Success: &no, WindowElapsedMS: &elapsed,
	})
	err = errors.Join(err,
		spool.put(schema.ResultPath, servedResult(rec.RunID, session)),
		spool.writeSurface(rec.RunID),
		spool.put(schema.CorrelationPath, schema.CorrelationReport{
			Schema: schema.CorrelationReportV0, RunID: rec.RunID, Status: schema.Partial,
			Bindings: []schema.Binding{}, Ambiguities: []string{},
		}),
		spool.put(schema.HealthPath, spool.health(rec.RunID)), // last: it counts what the others wrote
	)
	sealed, serr := spool.Seal(ctx)
	return sealed.Path, errors.Join(err, serr)
}

func (s *servedSpool) put(path string, doc any) error {
	data, err := schema.Document(doc)
	if err != nil {
		return err
	}
	return s.Put(path, data)
}

// servedResult claims no exit code: there was no command.
func servedResult(runID string, session schema.GatewaySession) *schema.Result {
	res := &schema.Result{
		Schema: schema.ResultV0, RunID: runID, Outcome: schema.OutcomeReported,
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone},
		Timings: schema.Timings{ChildNS: &session.TEndNS},
	}
	if session.Outcome == "" {
		source := schema.SourceRunner
		res.Outcome, res.ErrorSource = schema.OutcomeIncomplete, &source
		res.Error = &schema.ResultError{Code: "client_vanished", Message: "no client completed the run"}
	}
	return res
}

func (s *servedSpool) health(runID string) *schema.ObservationHealth {
	h := &schema.ObservationHealth{
		Schema: schema.ObservationHealthV0, RunID: runID, Platform: runtime.GOOS,
		KernelLayer: schema.Absent, PolicyLayer: schema.Absent, SDKLayer: schema.Absent,
		CgroupCorrelation: schema.Partial, NetworkProtocolCoverage: schema.Absent, NetworkEndpointClaimScope: schema.NotApplicable,
		Notes: []string{"contract_only_mode: kernel layer absent; the run reported to assay-run serve, which observes no processes"},
		Reasons: []schema.Reason{{
			Subject: "kernel", Code: "not_started_here", Message: "the agent was not started by assay-run, so nothing of it was observed",
			Remedy: "start it with assay-run -- CMD",
		}},
		Hooks: []schema.Hook{}, Coverage: []schema.Coverage{}, Layers: map[string]schema.LayerCounts{},
	}
	for _, path := range schema.Layers {
		h.Layers[schema.LayerName(path)] = s.Counts(path)
	}
	if h.Layers[schema.LayerName(schema.PolicyPath)].Written > 0 {
		h.PolicyLayer = schema.Present
	}
	return h
}

// writeSurface makes capability-surface.json of the policy layer, by the rules of
// any other run.
func (s *servedSpool) writeSurface(runID string) error {
	touched := surface.New(runID, s.Dir())
	defer touched.Close()
	f, err := os.Open(filepath.Join(s.Dir(), filepath.FromSlash(schema.PolicyPath)))
	if err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, archive.MaxLine)
		for lines.Scan() && err == nil {
			var e schema.PolicyEvent
			if err = json.Unmarshal(lines.Bytes(), &e); err == nil {
				touched.AddPolicy(&e)
			}
		}
		err = errors.Join(err, lines.Err())
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	var document bytes.Buffer
	_, werr := touched.WriteTo(&document)
	return errors.Join(err, werr, s.Put(schema.SurfacePath, document.Bytes()))
}
