package recording

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// States of a run.
const (
	Ready      = "ready"      // not opened yet
	Open       = "open"       // each call is a turn
	Closing    = "closing"    // waits for the calls in flight
	Completed  = "completed"  // a client ended the run
	Incomplete = "incomplete" // its clients are gone, or the gateway ended
)

// Recording is where a run is recorded.
type Recording struct {
	RunID string
	// Recorder is the runner's recorder, such as archive.Spool.
	Recorder evidence.Recorder
	// TurnsFile is the file to which Recorder appends the turns layer. Traces and subscriptions read it; they are
	// refused if it is empty.
	TurnsFile string
}

// Start is what a client says when it opens a run.
type Start struct {
	AgentID            string // 1 to 128 letters, digits, '.', '_' and '-', no dot first
	Intent             string
	OutcomeDescription string
}

// Options configure how a run is recorded.
type Options struct {
	Zero  time.Duration  // the run's time 0 on the caller's clock
	Rules *policy.Set    // for every call of the run
	Turns specfile.Turns // with its defaults
	// BlobBytes limits the sum of texts stored as blobs, in bytes.
	BlobBytes int64
	// BlobMin is the minimum size in bytes of a repeated text that is stored as a blob.
	BlobMin int
	// Once is set for a run that is sealed when it ends: it is not opened again.
	Once bool
}

// Run is a run that is being recorded. All methods are safe for concurrent use.
type Run struct {
	ID    string
	To    Recording
	Zero  time.Duration
	Rules *policy.Set
	State *policy.State // what the calls have set and rules may require

	blobs *blobStore
	once  bool

	documents sync.Mutex // one at a time is made and written

	mu       sync.Mutex
	start    Start
	key      string // idempotency key
	state    string
	outcome  string
	report   *schema.OutcomeReport
	bundle   string
	tStart   time.Duration
	tEnd     time.Duration
	active   int           // Enter calls without their Leave
	idle     chan struct{} // closed when active drops to 0 while closing
	clients  int
	grace    *time.Timer
	calls    map[string]uint64
	broken   error // the first error of recording
	turns    uint64
	size     int64         // of the turns file
	offsets  []int64       // of every indexEvery-th turn
	appended chan struct{} // closed and replaced when there are more turns
}

// New makes a run that is ready to be opened.
func New(to Recording, o Options) *Run {
	return &Run{
		ID: to.RunID, Zero: o.Zero, Rules: o.Rules, State: policy.NewState(), To: to,
		blobs: newBlobStore(to.Recorder, &o), once: o.Once,
		state: Ready, calls: map[string]uint64{}, appended: make(chan struct{}),
	}
}

// Once reports whether the run is sealed when it ends.
func (r *Run) Once() bool { return r.once }

// StateError is returned if a run's state does not allow an operation.
type StateError struct{ RunID, State string }

func (e *StateError) Error() string {
	if e.State == Open {
		return fmt.Sprintf("run %s is open already", e.RunID)
	}
	return fmt.Sprintf("run %s is not open, it is %s", e.RunID, e.State)
}

// Open opens a run at a time on the caller's clock, or joins an open one: with the idempotency key that opened it, or
// as the same agent. A run that its clients left is opened again; for a completed one the error is a *[StateError].
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

// Enter counts a call, and reports whether it is part of the run. If so, [Run.End] waits for its Leave.
func (r *Run) Enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != Open {
		return false
	}
	r.active++
	return true
}

// Leave ends what Enter counted.
func (r *Run) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active--; r.active == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Outcome is how a client ended the run. The zero value means that no client did.
type Outcome struct {
	Word   string
	Report *schema.OutcomeReport // nil: only the word
}

// End ends a run with a client's outcome, or as incomplete without one. It waits for the calls in flight, writes
// session.json, and then calls seal, which makes the run's bundle if it has its own. A second End returns a
// *[StateError]. Other errors say what could not be recorded; the run has ended nevertheless.
func (r *Run) End(outcome Outcome, now func() time.Duration,
	seal func(schema.GatewaySession) (bundle string, err error)) error {
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
	close(r.appended) // wakes readers, which see the end
	r.appended = make(chan struct{})
	return err
}

// close accepts no more calls, and waits for those in flight. They end on their own, at the latest at their
// deadlines.
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

// Attach counts a client. Detach stops counting it; after a grace time without clients, abandon is called in its own
// goroutine if the run is still open.
func (r *Run) Attach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients++
	r.stopGrace()
}

// Detach stops counting a client that Attach counted.
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

// stopGrace stops waiting for clients to reconnect. r.mu is held.
func (r *Run) stopGrace() {
	if r.grace != nil {
		r.grace.Stop()
		r.grace = nil
	}
}

// Failure is the first error of recording.
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

// Info summarizes a run.
type Info struct {
	Start
	State, Outcome, Bundle string
	Turns                  uint64
	Clients                int
	TStart, TEnd           time.Duration // since the run's time 0; TEnd is 0 before the end
}

// Info returns the run's current state.
func (r *Run) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Info{r.start, r.state, r.outcome, r.bundle, r.turns, r.clients, r.tStart, r.tEnd}
}

// Cut counts the values of turns that were cut.
func (r *Run) Cut() uint64 {
	r.blobs.mu.Lock()
	defer r.blobs.mu.Unlock()
	return r.blobs.cut
}

// session returns the current session.json. r.mu is held.
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

// layerHead starts a line of a layer. The members of its body follow.
func layerHead(dst []byte, schemaID, runID string, seq uint64) []byte {
	dst = append(dst, `{"schema":"`...)
	dst = append(dst, schemaID...)
	dst = append(dst, `","run_id":"`...)
	dst = append(dst, runID...) // letters, digits, '_' and '-'
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, ',')
}

// append writes one line whose body is an encoded, non-empty JSON object.
func (r *Run) append(layer, schemaID string, body []byte) error {
	return r.failed(r.To.Recorder.Append(layer, func(dst []byte, seq uint64) []byte {
		return append(layerHead(dst, schemaID, r.ID, seq), body[1:]...)
	}))
}

// Decision writes a line of the policy layer. body is an encoded policy event without the fields that the recorder
// sets.
func (r *Run) Decision(body []byte) error {
	return r.append(schema.PolicyPath, schema.PolicyEventV0, body)
}

// CallEvent writes a line of the audit layer and counts it by outcome. body is an encoded call event without the
// fields that the recorder sets.
func (r *Run) CallEvent(body []byte, kind string) error {
	err := r.append(schema.AuditPath, schema.CallEventV2, body)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls[kind]++
	}
	return err
}

// PutSession writes session.json.
func (r *Run) PutSession() error {
	r.documents.Lock()
	defer r.documents.Unlock()
	r.mu.Lock()
	s := r.session()
	r.mu.Unlock()
	doc, err := schema.Document(s)
	if err != nil {
		return err
	}
	return r.failed(r.To.Recorder.Put(schema.SessionPath, doc))
}

// PutPolicy writes policy.json if there is a policy.
func (r *Run) PutPolicy() error {
	r.documents.Lock()
	defer r.documents.Unlock()
	d, any := r.Rules.Document(r.ID)
	if !any {
		return nil
	}
	doc, err := schema.Document(d)
	if err != nil {
		return err
	}
	return r.failed(r.To.Recorder.Put(schema.PolicyFilePath, doc))
}

// Sync makes everything recorded so far survive a power failure.
func (r *Run) Sync() error { return r.failed(r.To.Recorder.Sync()) }

// Record brings turns below their limits and writes them contiguously, in order and in one write. It returns the
// index of the first.
func (r *Run) Record(turns []schema.TurnBody) (first uint64, err error) {
	bodies := make([][]byte, len(turns))
	for i := range turns {
		turns[i].Record = "turn"
		r.blobs.trim(&turns[i])
		if bodies[i], err = json.Marshal(&turns[i]); err != nil {
			return 0, err
		}
	}
	encode := func(dst []byte, seq uint64, i int) []byte {
		if i == 0 {
			first = seq
		}
		start := len(dst)
		dst = layerHead(dst, schema.TurnV0, r.ID, seq)
		dst = append(dst, `"index":`...)
		dst = strconv.AppendUint(dst, seq, 10)
		dst = append(dst, ',')
		dst = append(dst, bodies[i][1:]...)
		r.measure(seq, len(dst)-start+1)
		return dst
	}
	if err := r.To.Recorder.AppendBatch(schema.TurnsPath, len(bodies), encode); err != nil {
		return 0, r.failed(err)
	}
	r.mu.Lock()
	r.turns += uint64(len(bodies))
	close(r.appended)
	r.appended = make(chan struct{})
	r.mu.Unlock()
	return first, nil
}

// indexEvery is the number of turns between two known offsets of a turns file.
const indexEvery = 1024

// measure stores the offsets of turns in their file. The recorder calls encode for one line at a time and in order. A
// line that it then refuses breaks the recording anyway.
func (r *Run) measure(seq uint64, length int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq%indexEvery == 0 {
		r.offsets = append(r.offsets, r.size)
	}
	r.size += int64(length)
}

// ErrPolicy is wrapped by [Resume]'s error if the policy differs from the one that the run started with.
var ErrPolicy = errors.New("the run began with another policy")

// Lost is a call that the policy allowed and that has no recorded end: it was in flight when the recorder died.
type Lost struct {
	Tool, ToolCallID string
	TNS              time.Duration // when it was decided, since the run's time 0
	Turn             bool          // its turn is recorded
}

// Resume continues an open run whose recorder died, from its layers and documents in dir. The rules that clients
// added are in force again.
func Resume(to Recording, o Options, key, dir string) (_ *Run, lost []Lost, err error) {
	r := New(to, o)
	var s schema.GatewaySession
	if err := Document(dir, schema.SessionPath, &s); err != nil {
		return nil, nil, err
	}
	r.start, r.key = Start{AgentID: s.AgentID, Intent: s.Intent, OutcomeDescription: s.OutcomeDescription}, key
	r.state, r.tStart = Open, time.Duration(s.TStartNS)
	r.State.Set("run", Open)
	if err := r.resumeRules(dir); err != nil {
		return nil, nil, err
	}
	open := map[string][]Lost{}
	var order []string
	err = EachLine(dir, schema.PolicyPath, func(line []byte) error {
		var e schema.PolicyEvent
		err := json.Unmarshal(line, &e)
		if e.Source == agentlog.GatewaySource && e.Decision == "allow" {
			if len(open[e.ToolCallID]) == 0 {
				order = append(order, e.ToolCallID)
			}
			open[e.ToolCallID] = append(open[e.ToolCallID],
				Lost{Tool: e.Tool, ToolCallID: e.ToolCallID, TNS: time.Duration(e.TNS)})
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	turns := map[string]int{}
	verdict := ""
	err = EachLine(dir, schema.TurnsPath, func(line []byte) error {
		var t schema.Turn
		if err := json.Unmarshal(line, &t); err != nil {
			return err
		}
		r.measure(t.Seq, len(line)+1)
		r.turns++
		r.blobs.count(&t.TurnBody)
		if t.Source == "gateway" {
			turns[t.ToolCallID]++
			if t.VerifierVerdict != schema.VerdictNotRun {
				verdict = t.VerifierVerdict
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = EachLine(dir, schema.AuditPath, func(line []byte) error {
		e, err := schema.ParseCallEvent(line)
		if err != nil {
			return err
		}
		r.calls[e.Outcome.Kind]++
		if !e.DryRun {
			r.State.Ended(e.ToolID, &e.Outcome, schema.VerdictNotRun)
			if k := e.Outcome.Kind; k == schema.CallSuccess || k == schema.CallExecutionFailed {
				r.State.Set("last_tool", e.ToolID)
			}
		}
		turns[e.ToolCallID]--
		if calls := open[e.ToolCallID]; len(calls) > 0 {
			open[e.ToolCallID] = calls[1:]
		}
		return nil
	})
	if verdict != "" {
		r.State.Set("verdict", verdict)
	}
	for _, id := range order {
		for _, l := range open[id] {
			l.Turn = turns[id] > 0
			turns[id]--
			lost = append(lost, l)
		}
		delete(open, id)
	}
	if blobs, err := os.ReadDir(filepath.Join(dir, schema.BlobsDir)); err == nil {
		for _, blob := range blobs {
			if info, err := blob.Info(); err == nil {
				r.blobs.stored += info.Size()
			}
		}
	}
	return r, lost, err
}

// resumeRules puts the rules that clients added in force again.
func (r *Run) resumeRules(dir string) error {
	now, any := r.Rules.Document(r.ID)
	var was schema.Policy
	switch err := Document(dir, schema.PolicyFilePath, &was); {
	case errors.Is(err, os.ErrNotExist) && !any:
		return nil
	case errors.Is(err, os.ErrNotExist):
		return ErrPolicy
	case err != nil:
		return err
	}
	if (was.Digest == nil) != (now.Digest == nil) || was.Digest != nil && *was.Digest != *now.Digest {
		return ErrPolicy
	}
	for _, c := range was.ClientRules {
		rule := policyfile.Rule{
			Name: c.Name, Rule: c.Rule, Target: c.Target, Key: c.Key, Pattern: c.Pattern, Value: c.Values,
			ValuePath: c.Paths,
		}
		if err := r.Rules.Add(rule, time.Duration(c.TNS)); err != nil {
			return fmt.Errorf("%s: %w", schema.PolicyFilePath, err)
		}
	}
	return nil
}

// Document decodes a document in dir, where [Resume] finds them. For a missing one the error is [os.ErrNotExist].
func Document(dir, path string, into any) error {
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// EachLine calls f with each line of a layer, without its newline. A missing layer has no lines.
func EachLine(dir, path string, f func(line []byte) error) error {
	file, err := os.Open(filepath.Join(dir, filepath.FromSlash(path)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	for br, n := bufio.NewReaderSize(file, 1<<20), 1; ; n++ {
		line, err := br.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = f(line[:len(line)-1])
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
}

// Read opens the turns from index on.
func (r *Run) Read(index uint64) (*Reader, error) {
	if r.To.TurnsFile == "" {
		return nil, fmt.Errorf("run %s: %w", r.ID, ErrNoTrace)
	}
	r.mu.Lock()
	turns := r.turns
	var at int64
	start := min(index/indexEvery, uint64(max(len(r.offsets)-1, 0)))
	if len(r.offsets) > 0 {
		at = r.offsets[start]
	}
	r.mu.Unlock()
	if index > turns {
		return nil, fmt.Errorf("from_index: %w: run %s has %d turns", ErrNoTurn, r.ID, turns)
	}
	t := &Reader{run: r, at: at, Next: start * indexEvery}
	for t.Next < index {
		if _, n, err := t.page(1<<16, index-t.Next); err != nil || n == 0 {
			t.Close()
			return nil, fmt.Errorf("the trace of run %s ends at turn %d: %w", r.ID, t.Next,
				errors.Join(err, io.ErrUnexpectedEOF))
		}
	}
	return t, nil
}
