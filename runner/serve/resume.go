package serve

import (
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Resume goes on with a run that an earlier serve left open: clients of g may come
// back to it. On an error the spool is closed, and stays to be sealed.
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
	// The clock of the lines never goes back, whatever became of the wall clock.
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
		Redactor: redactor, RunID: record.RunID, Recorder: spool, ScratchDir: spool.Dir(), Clock: gateway.BootTime, Elapsed: elapsed,
	})
	calls := evidence.NewCalls(log, binding.Options{})
	if err := retell(calls, spool.Dir()); err != nil {
		return err
	}
	r.mu.Lock()
	r.open[record.RunID] = &run{spool: spool, log: log, calls: calls, resumed: true}
	r.mu.Unlock()
	live := filepath.Join(filepath.Dir(record.Output), record.RunID+".jsonl")
	return g.Resume(gateway.Recording{RunID: record.RunID, Recorder: log.Recorder, TurnsFile: live}, spool.Dir(), elapsed)
}

// retell tells of the calls that are on record.
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

// suspend gives up a run that a later serve may go on with.
func (r *Runs) suspend(rec gateway.Recording) error {
	run, err := r.take(rec.RunID)
	if err != nil {
		return err
	}
	return run.spool.Close()
}
