package evidence

import (
	"errors"

	"github.com/assay-run/assay-run/schema"
)

// Findings are what is known of a run at its end.
type Findings struct {
	Result *schema.Result
	// Signal is the number of Result.Signal.
	Signal int
	// Success is run_finished's: what was asked for was done.
	Success bool
	// Calls are the run's tool calls.
	Calls *Calls
	// Observed tells that there is a kernel layer, and Correlation is what may
	// be said of its cgroup: health's cgroup_correlation.
	Observed    bool
	Correlation string
	// Unobserved is what health notes where there is no kernel layer.
	Unobserved string
	// Health adds to observation-health.json, which has the counts of all
	// layers by then. Nil adds nothing.
	Health func(*schema.ObservationHealth)
	// Late waits for what takes its time while the other documents are written, and
	// gives the reasons that it adds to observation-health.json. Nil adds none.
	Late func() []schema.Reason
	// Missing tells of evidence that could not be kept before.
	Missing error
	// Settle has the last word about Result. It is given what the run claims and
	// what is missing, nil for nothing, just before the result is written, and
	// again if a document could not be. Nil changes nothing.
	Settle func(h *schema.ObservationHealth, missing error)
}

// Prepare lets the JSON encoder learn the types of the documents, which it otherwise
// does when the first of each is written, between the command's end and ours.
func Prepare() {
	for _, empty := range []any{&schema.Result{}, &schema.CorrelationReport{}, &schema.ObservationHealth{}, &schema.CapabilitySurface{}, &schema.Manifest{}} {
		_, _ = schema.Document(empty)
	}
}

// Finish writes run_finished and the documents of the run. The error tells of
// evidence that could not be recorded, now or before. It is called once.
func (l *Log) Finish(f Findings) error {
	l.finished(f)
	f.Calls.surface(l.Surface)
	var file surfaceFile
	missing := errors.Join(f.Missing, l.failed(), file.write(l))
	uncorrelated := l.Put(schema.CorrelationPath, f.Calls.report(l, f))
	h := l.claims(f, file)
	health := l.Put(schema.HealthPath, h)
	if f.Late != nil {
		if late := f.Late(); len(late) > 0 {
			h.Reasons = append(h.Reasons, late...)
			health = l.Put(schema.HealthPath, h)
		}
	}
	if f.Settle != nil {
		f.Settle(h, missing)
	}
	unwritten := errors.Join(uncorrelated, health, l.Put(schema.ResultPath, f.Result)) // the last: a run with a result had come to its end
	if unwritten != nil && f.Settle != nil {
		f.Settle(h, unwritten)
		_ = l.Put(schema.ResultPath, f.Result) // where it can be, it says so
	}
	return errors.Join(missing, unwritten)
}

func (l *Log) finished(f Findings) {
	elapsed := l.Elapsed().Milliseconds()
	e := schema.Event{
		Type: schema.RunFinished, ExitCode: schema.None[int](), Signal: schema.None[schema.SignalNumber](),
		WindowElapsedMS: &elapsed, Success: &f.Success,
	}
	if f.Result.ExitCode != nil {
		e.ExitCode = schema.Some(*f.Result.ExitCode)
	}
	if f.Result.Signal != nil {
		e.Signal, e.SignalName = schema.Some(schema.SignalNumber{Number: f.Signal}), *f.Result.Signal
	}
	l.Event(e)
}

// claims is observation-health.json.
func (l *Log) claims(f Findings, file surfaceFile) *schema.ObservationHealth {
	h := l.health()
	if f.Correlation != "" {
		h.CgroupCorrelation = f.Correlation
	}
	if f.Health != nil {
		f.Health(h)
	}
	f.Calls.health(h)
	h.Reasons = append(h.Reasons, file.reasons...)
	if h.NetworkEndpointClaimScope == schema.PeerSet && l.Surface.EndpointsOmitted() {
		h.NetworkEndpointClaimScope = schema.DiagnosticOnly
	}
	if h.KernelLayer == schema.Absent {
		h.Notes = append(h.Notes, "contract_only_mode: kernel layer absent; "+f.Unobserved)
	}
	return h
}
