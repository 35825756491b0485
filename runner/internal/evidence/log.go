package evidence

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/surface"
)

// Config says where a run's evidence goes.
type Config struct {
	RunID    string
	Recorder Recorder
	// ScratchDir is where a large surface keeps what does not fit in memory;
	// empty keeps everything there.
	ScratchDir string
	// Clock is CLOCK_BOOTTIME, or any other clock that never goes back.
	Clock func() time.Duration
	// Elapsed is set for a run that goes on after its recorder died: the time since
	// run_started, which is written already.
	Elapsed time.Duration
	// OnLoss is told of evidence that could not be kept, from any goroutine;
	// nil tells nobody.
	OnLoss func(schema.Reason)
	// Redactor takes the secrets out of everything before it is recorded; nil
	// records everything as it is, and observation-health.json says so.
	Redactor *redact.Redactor
	// Model tells that there is a model layer.
	Model bool
}

// Log writes the evidence of one run. Its methods are safe for concurrent use,
// but for Finish, which is the last.
type Log struct {
	Config
	// Surface is the capability surface. Finish writes and closes it.
	Surface *surface.Builder

	exact Exact
	began time.Time // by the wall clock

	mu      sync.Mutex
	zero    time.Duration // the clock at run_started
	started bool
	ended   bool  // run_finished is written
	err     error // the first failure to record
}

// checkpointer is a Recorder that tells, about once a second, what it has written.
type checkpointer interface {
	OnCheckpoint(func(schema.Checkpoint))
}

// New returns a Log in which nothing has been written yet.
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

// Exact is the way into the bundle of what digests name.
func (l *Log) Exact() Exact { return l.exact }

// Event stamps e with the run, the time and a sequence number and appends it to
// events.ndjson. Finish returns the first error that this met.
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

// Append adds the line that stamp makes for a sequence number to a layer.
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

// Lose tells the caller of evidence that is missing.
func (l *Log) Lose(reason schema.Reason) {
	if l.OnLoss != nil {
		l.OnLoss(reason)
	}
}

// Start is when run_started was written, on the Log's clock.
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

// Now is the same in nanoseconds, as lines have it.
func (l *Log) Now() int64 { return int64(l.Elapsed()) }

// failed is the first error that recording an event met.
func (l *Log) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// health is observation-health.json before anybody has added to it: no claims,
// and the lines that each layer has.
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
	for _, empty := range []any{&schema.Result{}, &schema.CorrelationReport{}, &schema.ObservationHealth{},
		&schema.CapabilitySurface{}, &schema.Manifest{}} {
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
	l.summarize(f.Result, h)
	// the last: a run with a result had come to its end
	unwritten := errors.Join(uncorrelated, health, l.Put(schema.ResultPath, f.Result))
	if unwritten != nil && f.Settle != nil {
		f.Settle(h, unwritten)
		_ = l.Put(schema.ResultPath, f.Result) // where it can be, it says so
	}
	return errors.Join(missing, unwritten)
}

// summarize sets the fields of the result that tell a reader of the result alone when the run was, and what it may
// claim.
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
