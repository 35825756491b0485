package recording

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// States of a run.
const (
	Ready      = "ready"      // not opened yet
	Open       = "open"       // each call is a turn
	Closing    = "closing"    // waits for the calls in flight
	Completed  = "completed"  // a client said so
	Incomplete = "incomplete" // its clients vanished, or the gateway ended
)

// Recording is where one recorded run goes.
type Recording struct {
	RunID string
	// Recorder is the runner's: archive.Spool, for one.
	Recorder evidence.Recorder
	// TurnsFile is the file that Recorder appends the turns layer to. Traces
	// and subscriptions read it; they are refused when it is empty.
	TurnsFile string
}

// Start is what a client said when it opened a run.
type Start struct {
	AgentID            string // 1 to 128 letters, digits, '.', '_' and '-', no dot first
	Intent             string
	OutcomeDescription string
}

// Options say how a run is kept.
type Options struct {
	Zero  time.Duration // the time of the run's 0 on the clock that its caller reads
	Rules *policy.Set   // in force for every call of the run
	Turns Turns         // with its defaults
	// BlobBytes bounds the texts stored apart, in bytes together.
	BlobBytes int64
	// BlobMin is the least size in bytes of a text that is stored apart when it
	// repeats.
	BlobMin int
	// Once is set for a run that is sealed when it ends: it is never opened
	// again.
	Once bool
}

// Run is a run being recorded. All methods are safe for concurrent use.
type Run struct {
	ID    string
	To    Recording
	Zero  time.Duration
	Rules *policy.Set
	State *policy.State // what the rules may require, as the run's calls left it

	blobs *blobStore
	once  bool

	documents sync.Mutex // one is made and put at a time

	mu       sync.Mutex
	start    Start
	key      string // idempotency key
	state    string
	outcome  string
	report   *schema.OutcomeReport
	bundle   string
	tStart   time.Duration
	tEnd     time.Duration
	active   int           // what was entered and has not been left
	idle     chan struct{} // closed when active falls to 0 while closing
	clients  int
	grace    *time.Timer
	calls    map[string]uint64
	broken   error // the first failure to record
	turns    uint64
	size     int64         // of the turns file
	offsets  []int64       // of every indexEvery-th turn
	appended chan struct{} // closed, and replaced, when there are more turns
}

// New makes a run that is ready to be opened.
func New(to Recording, o Options) *Run {
	return &Run{
		ID: to.RunID, Zero: o.Zero, Rules: o.Rules, State: policy.NewState(), To: to, blobs: newBlobStore(to.Recorder, &o), once: o.Once,
		state: Ready, calls: map[string]uint64{}, appended: make(chan struct{}),
	}
}

// Once tells that the run is sealed when it ends.
func (r *Run) Once() bool { return r.once }

// StateError is returned where a run's state does not allow what was asked.
type StateError struct{ RunID, State string }

func (e *StateError) Error() string {
	if e.State == Open {
		return fmt.Sprintf("run %s is open already", e.RunID)
	}
	return fmt.Sprintf("run %s is not open, it is %s", e.RunID, e.State)
}

// Open opens a run at a time on the caller's clock, or joins it: with the
// idempotency key that it was opened with, or as the same agent while it is
// open. A run that its clients left is opened again; one that was completed is
// not, and the error is a *[StateError].
func (r *Run) Open(start Start, key string, now time.Duration) error {
	r.mu.Lock()
	switch {
	case r.state == Ready || r.state == Incomplete && !r.once:
	case r.state == Open && (key != "" && key == r.key || r.start.AgentID == start.AgentID):
		r.mu.Unlock()
		return nil
	default:
		defer r.mu.Unlock()
		return &StateError{r.ID, r.state}
	}
	r.start, r.key = start, key
	r.state, r.outcome, r.report = Open, "", nil
	r.tStart, r.tEnd = now-r.Zero, 0
	r.State.Set("run", Open)
	r.mu.Unlock()
	return r.PutSession()
}

// Enter counts a call in, and tells whether it is part of the run: [Run.End]
// waits for it then.
func (r *Run) Enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != Open {
		return false
	}
	r.active++
	return true
}

// Leave counts a call out that Enter counted in.
func (r *Run) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active--; r.active == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Outcome is what a client called the run's end. The zero value: nobody completed it.
type Outcome struct {
	Word   string
	Report *schema.OutcomeReport // nil: the word alone
}

// End ends a run with a client's outcome, or without one as incomplete. It waits for
// the calls in flight, writes session.json, and then calls seal, which makes the
// run's bundle if it is its own. Ending it twice is a *[StateError]; other errors
// tell what could not be recorded, and the run has ended all the same.
func (r *Run) End(outcome Outcome, now func() time.Duration, seal func(schema.GatewaySession) (bundle string, err error)) error {
	if err := r.close(); err != nil {
		return err
	}
	r.mu.Lock()
	r.outcome, r.report = outcome.Word, outcome.Report
	r.tEnd = now() - r.Zero
	session := r.session()
	r.mu.Unlock()
	r.State.Set("run", "")
	err := r.PutSession()
	bundle, serr := seal(session)
	r.blobs.forget()
	if serr = r.failed(serr); serr != nil {
		err = serr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundle = bundle
	r.state = Completed
	if outcome.Word == "" {
		r.state = Incomplete
	}
	close(r.appended) // wakes readers to see the end
	r.appended = make(chan struct{})
	return err
}

// close takes no more calls, and waits for those in flight. They end by
// themselves: by their deadlines at the latest.
func (r *Run) close() error {
	r.mu.Lock()
	if r.state != Open {
		defer r.mu.Unlock()
		return &StateError{r.ID, r.state}
	}
	r.state = Closing
	r.stopGrace()
	var idle chan struct{}
	if r.active > 0 {
		idle = make(chan struct{})
		r.idle = idle
	}
	r.mu.Unlock()
	if idle != nil {
		<-idle
	}
	return nil
}

// Attach counts a client in. Detach counts it out; after a grace time without
// any, abandon is called in a goroutine of its own, if the run is still open.
func (r *Run) Attach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients++
	r.stopGrace()
}

// Detach counts a client out that Attach counted in.
func (r *Run) Detach(grace time.Duration, abandon func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients--; r.clients == 0 && r.state == Open {
		r.grace = time.AfterFunc(grace, func() {
			r.mu.Lock()
			left := r.clients == 0 && r.state == Open
			r.mu.Unlock()
			if left {
				abandon()
			}
		})
	}
}

// stopGrace stops the waiting for clients to come back. r.mu is held.
func (r *Run) stopGrace() {
	if r.grace != nil {
		r.grace.Stop()
		r.grace = nil
	}
}

// Failure is the first error that recording met.
func (r *Run) Failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

func (r *Run) failed(err error) error {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.broken == nil {
			r.broken = err
		}
	}
	return err
}

// Info is a run at a glance.
type Info struct {
	Start
	State, Outcome, Bundle string
	Turns                  uint64
	Clients                int
	TStart, TEnd           time.Duration // since the run's 0; no end before it has ended
}

// Info tells where the run stands.
func (r *Run) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Info{r.start, r.state, r.outcome, r.bundle, r.turns, r.clients, r.tStart, r.tEnd}
}

// Cut is how many values of turns were cut.
func (r *Run) Cut() uint64 {
	r.blobs.mu.Lock()
	defer r.blobs.mu.Unlock()
	return r.blobs.cut
}

// session is session.json as of now. r.mu is held.
func (r *Run) session() schema.GatewaySession {
	state := Completed
	if r.outcome == "" {
		state = Incomplete
	}
	return schema.GatewaySession{
		Schema: schema.GatewaySessionV0, RunID: r.ID,
		AgentID: r.start.AgentID, Intent: r.start.Intent, OutcomeDescription: r.start.OutcomeDescription,
		State: state, Outcome: r.outcome, OutcomeReport: r.report, TStartNS: int64(r.tStart), TEndNS: int64(r.tEnd),
		Turns: r.turns, Calls: maps.Clone(r.calls), Cut: r.Cut(),
	}
}
