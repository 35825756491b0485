package evidence

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/surface"
)

// Config configures a Log.
type Config struct {
	RunID    string
	Recorder Recorder
	// ScratchDir is a directory for the part of a large surface that does not fit into memory; empty keeps everything
	// in memory.
	ScratchDir string
	// Clock is CLOCK_BOOTTIME, or any other clock that never goes back.
	Clock func() time.Duration
	// Elapsed is set for a run that continues after its recorder died: the time since run_started, which is already
	// written.
	Elapsed time.Duration
	// OnLoss is called for evidence that could not be kept, from any goroutine. It may be nil.
	OnLoss func(schema.Reason)
	// Redactor removes secrets from everything before it is recorded. Nil records them, and observation-health.json
	// says so.
	Redactor *redact.Redactor
	// Model means that there is a model layer.
	Model bool
}

// Log writes the evidence of one run. Its methods are safe for concurrent use, except for Finish, which must be the
// last.
type Log struct {
	Config
	// Surface is the capability surface. Finish writes and closes it.
	Surface *surface.Builder

	exact Exact
	began time.Time // wall clock

	mu      sync.Mutex
	zero    time.Duration // the clock at run_started
	started bool
	ended   bool  // run_finished is written
	err     error // the first error of recording
}

// checkpointer is a Recorder that reports about once a second what it has written.
type checkpointer interface {
	OnCheckpoint(func(schema.Checkpoint))
}

// New returns an empty Log.
func New(c Config) *Log {
	l := &Log{Config: c, Surface: surface.New(c.RunID, c.ScratchDir), began: time.Now().Add(-c.Elapsed)}
	l.exact = Exact{c.Recorder, c.Redactor}
	if c.Elapsed > 0 {
		l.started, l.zero = true, c.Clock()-c.Elapsed
	}
	if c.Redactor != nil {
		l.Recorder = newRedacted(c.Recorder, c.Redactor, c.RunID)
		l.Surface.Redact = func(name string) string { return c.Redactor.Name(schema.SurfacePath, name) }
	}
	if r, ok := c.Recorder.(checkpointer); ok {
		r.OnCheckpoint(func(c schema.Checkpoint) { l.Event(schema.Event{Type: schema.CheckpointMade, Checkpoint: &c}) })
	}
	return l
}

// Exact writes members whose digests are recorded.
func (l *Log) Exact() Exact { return l.exact }

// Event sets e's run, time and sequence number and appends it to events.ndjson. Finish returns the first error.
func (l *Log) Event(e schema.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Type == schema.CheckpointMade && (!l.started || l.ended) {
		return // run_started is first and run_finished last
	}
	now := l.Clock()
	if !l.started {
		l.started, l.zero = true, now
	}
	l.ended = l.ended || e.Type == schema.RunFinished
	e.Schema, e.RunID, e.TNS = schema.EventV0, l.RunID, int64(now-l.zero)
	err := l.Append(schema.EventsPath, func(seq uint64) any { e.Seq = seq; return &e })
	if err != nil && l.err == nil {
		l.err = err
	}
}

// Append appends a line to a layer. stamp makes the line for a sequence number.
func (l *Log) Append(layer string, stamp func(seq uint64) any) error {
	return l.Recorder.Append(layer, func(dst []byte, seq uint64) []byte {
		line, err := schema.Line(stamp(seq))
		if err != nil {
			panic("encode line: " + err.Error()) // plain data always encodes
		}
		return append(dst, line[:len(line)-1]...)
	})
}

// Put writes a document.
func (l *Log) Put(path string, doc any) error {
	data, err := schema.Document(doc)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return l.Recorder.Put(path, data)
}

// Lose reports missing evidence to the caller's OnLoss.
func (l *Log) Lose(reason schema.Reason) {
	if l.OnLoss != nil {
		l.OnLoss(reason)
	}
}

// Start is the time of run_started on the Log's clock.
func (l *Log) Start() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.zero
}

// Elapsed is the time since run_started.
func (l *Log) Elapsed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Clock() - l.zero
}

// Now is Elapsed in nanoseconds, as in lines.
func (l *Log) Now() int64 { return int64(l.Elapsed()) }

// failed is the first error of recording an event.
func (l *Log) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// health is the initial observation-health.json: no claims, and the number of lines of each layer.
func (l *Log) health() *schema.ObservationHealth {
	h := &schema.ObservationHealth{
		Schema: schema.ObservationHealthV0, RunID: l.RunID, Platform: runtime.GOOS,
		KernelLayer: schema.Absent, KernelState: schema.Absent, PolicyLayer: schema.Absent, SDKLayer: schema.Absent,
		CgroupCorrelation: schema.Partial, NetworkProtocolCoverage: schema.Absent,
		NetworkEndpointClaimScope: schema.NotApplicable,
		Notes:                     []string{}, Reasons: []schema.Reason{}, Hooks: []schema.Hook{},
		Coverage: []schema.Coverage{},
		Layers:   map[string]schema.LayerCounts{}, Redaction: receipt(l.Redactor),
	}
	if err := l.Redactor.Unkept(); err != nil {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "redaction", Code: "redaction_key_ephemeral",
			Message: fmt.Sprintf(
				"the tags of redacted secrets cannot be compared with those in other bundles, as the key was made "+
					"for this run alone: %v",
				err,
			),
			Remedy: "set XDG_STATE_HOME to a directory that can be written, or name a key file with --redaction-key",
		})
	}
	layers := schema.Layers
	if l.Model {
		layers = schema.AllLayers
	}
	for _, path := range layers {
		h.Layers[schema.LayerName(path)] = l.Recorder.Counts(path)
	}
	return h
}

// Findings are what is known about a run at its end.
type Findings struct {
	Result *schema.Result
	// Signal is the number of Result.Signal.
	Signal int
	// Success is the value in run_finished: the run did what was asked for.
	Success bool
	// Calls are the run's tool calls.
	Calls *Calls
	// Observed means that there is a kernel layer. Correlation is the health's cgroup_correlation, which limits what
	// the report may claim.
	Observed    bool
	Correlation string
	// Unobserved is the health's note if there is no kernel layer.
	Unobserved string
	// Health adds to observation-health.json, which already has the counts of all layers. It may be nil.
	Health func(*schema.ObservationHealth)
	// Late waits for slow work that runs while the other documents are written, and returns reasons for
	// observation-health.json. It may be nil.
	Late func() []schema.Reason
	// Missing says which evidence could not be kept earlier.
	Missing error
	// Settle makes the last changes to Result. It is called just before the result is written, with the run's claims
	// and the missing evidence (nil: none), and again if a document could not be written. It may be nil.
	Settle func(h *schema.ObservationHealth, missing error)
}

// Prepare lets the JSON encoder prepare for the documents' types. Otherwise it would do so after the command's end.
func Prepare() {
	for _, empty := range []any{&schema.Result{}, &schema.CorrelationReport{}, &schema.ObservationHealth{},
		&schema.CapabilitySurface{}, &schema.Manifest{}} {
		_, _ = schema.Document(empty)
	}
}

// Finish writes run_finished and the documents of the run. The error lists evidence that could not be recorded, now
// or earlier. It is called once.
func (l *Log) Finish(f Findings) error {
	l.finished(f)
	f.Calls.surface(l.Surface)
	var file surfaceFile
	surface := file.write(l)
	missing := errors.Join(f.Missing, l.failed(), surface)
	if missing == nil { // a batch that failed later is no error of the one who appended to it
		// The caller limits the size of files for the command: what exceeds the limit is told and in the health, and
		// the command's exit code stands.
		if err := l.Recorder.Failed(); !errors.Is(err, syscall.EFBIG) {
			missing = err
		}
	}
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
	l.summarize(f.Result, h)
	// Write it last: it means that the run came to its end.
	unwritten := errors.Join(uncorrelated, health, l.Put(schema.ResultPath, f.Result))
	if unwritten != nil && f.Settle != nil {
		f.Settle(h, unwritten)
		_ = l.Put(schema.ResultPath, f.Result) // write it again if possible, with the error
	}
	return errors.Join(missing, unwritten)
}

// summarize sets the result's fields about the time and the claims of the run, for readers of the result alone.
func (l *Log) summarize(res *schema.Result, h *schema.ObservationHealth) {
	res.StartedAt, res.EndedAt = schema.Wall(l.began), schema.Wall(time.Now())
	res.KernelState, res.TamperResistance = h.KernelState, h.TamperResistance
	var dropped uint64
	for _, counts := range h.Layers {
		dropped += counts.Dropped
	}
	res.EventsDropped = &dropped
}

func (l *Log) finished(f Findings) {
	elapsed := l.Elapsed().Milliseconds()
	e := schema.Event{
		Type: schema.RunFinished, ExitCode: schema.None[int](), Signal: schema.None[int](),
		WindowElapsedMS: &elapsed, Success: &f.Success,
	}
	if f.Result.ExitCode != nil {
		e.ExitCode = schema.Some(*f.Result.ExitCode)
	}
	if f.Result.Signal != nil {
		e.Signal, e.SignalName = schema.Some(f.Signal), *f.Result.Signal
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
