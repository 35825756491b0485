package gateway

import (
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// States of a recording.
const (
	stateReady      = "ready"      // the run's own, before runs.start
	stateOpen       = "open"       // each call is a turn
	stateClosing    = "closing"    // waits for the calls in flight
	stateCompleted  = "completed"  // a client said so
	stateIncomplete = "incomplete" // its clients vanished, or the gateway ended
)

// indexEvery is how many turns lie between two known offsets of a turns file.
const indexEvery = 1024

// recording is a run being recorded. Its recorder alone numbers the lines.
type recording struct {
	id    string
	rec   Recorder
	file  string
	zero  time.Duration // the gateway's time of the recording's 0
	scope *scope
	blobs *blobStore

	documents sync.Mutex // one is made and put at a time

	mu       sync.Mutex
	start    Start
	key      string // idempotency key
	state    string
	outcome  string
	bundle   string
	tStart   time.Duration
	tEnd     time.Duration
	active   int           // calls that were accepted and have not ended
	idle     chan struct{} // closed when active falls to 0 while closing
	conns    map[*conn]bool
	grace    *time.Timer
	calls    map[string]uint64
	broken   error // the first failure to record
	turns    uint64
	size     int64         // of the turns file
	offsets  []int64       // of every indexEvery-th turn
	appended chan struct{} // closed, and replaced, when there are more turns
}

func newRecording(r Recording, zero time.Duration, sc *scope, cfg *Config) *recording {
	return &recording{
		id: r.RunID, rec: r.Recorder, file: r.TurnsFile, zero: zero, scope: sc,
		blobs: newBlobStore(r.Recorder, cfg), state: stateReady, conns: map[*conn]bool{},
		calls: map[string]uint64{}, appended: make(chan struct{}),
	}
}

// enter counts a call in, and tells whether it is to be a turn.
func (r *recording) enter() (turn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != stateOpen {
		return false
	}
	r.active++
	return true
}

// exit counts a call out that enter counted in.
func (r *recording) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active--; r.active == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// failure is the first error that recording met: nothing more can be taken as
// recorded.
func (r *recording) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

func (r *recording) failed(err error) error {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.broken == nil {
			r.broken = err
		}
	}
	return err
}

func (r *recording) countCall(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[kind]++
}

// append writes one line whose body is an encoded, non-empty JSON object.
func (r *recording) append(layer, schemaID string, body []byte) error {
	return r.failed(r.rec.Append(layer, func(dst []byte, seq uint64) []byte {
		return append(appendHead(dst, schemaID, r.id, seq), body[1:]...)
	}))
}

// record writes turns: contiguous, in order, and in one write where the
// recorder can. It returns the index of the first.
func (r *recording) record(turns []schema.TurnBody) (first uint64, err error) {
	bodies := make([][]byte, len(turns))
	for i := range turns {
		if bodies[i], err = json.Marshal(&turns[i]); err != nil {
			return 0, err
		}
	}
	encode := func(dst []byte, seq uint64, i int) []byte {
		if i == 0 {
			first = seq
		}
		dst = appendHead(dst, schema.TurnV0, r.id, seq)
		dst = append(dst, `"index":`...)
		dst = strconv.AppendUint(dst, seq, 10)
		dst = append(dst, ',')
		return append(dst, bodies[i][1:]...)
	}
	// Lengths are known before: a line is its body, its head and its numbers.
	if b, ok := r.rec.(batchRecorder); ok {
		err = b.AppendBatch(schema.TurnsPath, len(bodies), func(dst []byte, seq uint64, i int) []byte {
			start := len(dst)
			dst = encode(dst, seq, i)
			r.measure(seq, len(dst)-start+1)
			return dst
		})
	} else {
		for i := range bodies {
			at := i
			err = r.rec.Append(schema.TurnsPath, func(dst []byte, seq uint64) []byte {
				start := len(dst)
				dst = encode(dst, seq, at)
				r.measure(seq, len(dst)-start+1)
				return dst
			})
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return 0, r.failed(err)
	}
	r.mu.Lock()
	r.turns += uint64(len(bodies))
	close(r.appended)
	r.appended = make(chan struct{})
	r.mu.Unlock()
	return first, nil
}

// measure notes where turns lie in their file. The recorder calls encode for
// one line at a time and in order. A line that it then refuses breaks the
// recording anyway.
func (r *recording) measure(seq uint64, length int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq%indexEvery == 0 {
		r.offsets = append(r.offsets, r.size)
	}
	r.size += int64(length)
}

// session is session.json as of now. r.mu is held.
func (r *recording) session() schema.GatewaySession {
	state := stateCompleted
	if r.outcome == "" {
		state = stateIncomplete
	}
	return schema.GatewaySession{
		Schema: schema.GatewaySessionV0, RunID: r.id,
		AgentID: r.start.AgentID, Intent: r.start.Intent, OutcomeDescription: r.start.OutcomeDescription,
		State: state, Outcome: r.outcome, TStartNS: int64(r.tStart), TEndNS: int64(r.tEnd),
		Turns: r.turns, Calls: clone(r.calls),
	}
}

// putSession writes session.json.
func (r *recording) putSession() error {
	r.documents.Lock()
	defer r.documents.Unlock()
	r.mu.Lock()
	s := r.session()
	r.mu.Unlock()
	doc, err := schema.Document(s)
	if err != nil {
		return err
	}
	return r.failed(r.rec.Put(schema.SessionPath, doc))
}

// putPolicy writes policy.json when there is a policy to tell of.
func (r *recording) putPolicy() error {
	r.documents.Lock()
	defer r.documents.Unlock()
	d, any := r.scope.rules.Document(r.id)
	if !any {
		return nil
	}
	doc, err := schema.Document(d)
	if err != nil {
		return err
	}
	return r.failed(r.rec.Put(schema.PolicyFilePath, doc))
}

// attach and detach count the clients of a recording; without one for the
// grace time it ends as incomplete.
func (r *recording) attach(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[c] = true
	if r.grace != nil {
		r.grace.Stop()
		r.grace = nil
	}
}

func (r *recording) detach(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.conns[c] {
		return
	}
	delete(r.conns, c)
	if len(r.conns) == 0 && r.state == stateOpen {
		r.grace = time.AfterFunc(c.g.limits.Grace, func() { c.g.abandon(r) })
	}
}
