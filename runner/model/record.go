package model

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"

	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/runner/model/wire"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/modelfile"
)

// Limits of the record.
const (
	maxDecoded  = 256 << 20 // bytes of a decoded body
	maxBody     = 64 << 20  // bytes of a body that is kept
	maxSkeleton = 2 << 20   // bytes of a body without the texts stored as members
	maxCallText = 64 << 10  // bytes of a call's arguments in a line, counted in the same way
	maxInLine   = 512 << 10 // bytes of all calls in a line
	minBlob     = 256       // bytes of a text stored as a member
	maxBlobs    = 1 << 30   // bytes of all such texts
	maxListed   = 256       // tool calls, and results, of a line
	maxKnown    = 100_000   // tool results that are remembered
	maxWaiting  = 256       // exchanges that wait until their process is known
	maxWait     = 30 * time.Second
	maxPath     = 512       // bytes of a path
	maxLine     = 960 << 10 // bytes of a line; redaction may still lengthen it
	maxLines    = 256 << 20 // bytes of all lines; beyond it, lines leave out what the agent can make long
	maxTaken    = 1_000_000 // exchanges
	maxHosts    = 16        // hosts, and names of odd members, of the totals
)

// doubtNoID is the doubt about a call without an id: its result is known by the tool's name and the order alone.
const doubtNoID = "no_id"

// The recorder leaves the CPUs to the requests. It starts when nothing has begun or ended for a moment, when somebody
// waits for its results, or when this much is waiting.
const (
	moment   = 2 * time.Millisecond
	maxParts = 512
	maxHeld  = 8 << 20 // bytes in memory
)

// RecorderConfig configures a Recorder.
type RecorderConfig struct {
	Log *evidence.Log
	// Prices is the price list; nil: costs are unknown.
	Prices *modelfile.Prices
	// Calls gets the tool calls and results in answers and requests; it may be nil.
	Calls Calls
	// Replay has the answers of an earlier run; nil: the providers answer.
	Replay *tape.Cassette
	// Digests records only digests of bodies and of tool calls' arguments.
	Digests bool
}

// Calls gets the tool calls of models: see package binding.
type Calls interface {
	// Proposed is called when the last byte of a call was passed on, at time at. The number identifies the call in
	// Recorded.
	Proposed(id, tool string, args []byte, at int64) (number int)
	// Recorded is called when a line of the model layer has the call.
	Recorded(number int, seq uint64)
	// Answered is called when a request brought the result of a call.
	Answered(id, tool string, failed bool, at int64)
}

// Recorder writes the model layer in its own goroutines. Its methods are safe for concurrent use.
type Recorder struct {
	cfg   RecorderConfig
	blobs *recording.Blobs
	done  chan struct{}

	large sync.Mutex // held while a large body is decoded, so that there is one of them at a time

	mu       sync.Mutex
	came     sync.Cond          // a part is waiting, or closed; passing requests wake nobody else
	changed  sync.Cond          // queue, askers or looked-at parts have changed, or closed
	fresh    []part             // to be searched for tool calls
	looking  bool               // a part that was taken out of fresh is being searched
	passed   time.Time          // when the last part came
	wanted   int                // callers of Known that wait
	flying   map[*exchange]bool // requests passed on whose answers have not ended
	queue    []*exchange        // whose lines must be written
	askers   map[string]*askers
	observed bool // Connected will be called
	closed   bool
	taken    uint64 // exchanges that have ended
	out, in  uint64 // bytes to and from the endpoint, as the kernel counted them

	answered map[string]bool // tool results already reported; owned by the searching goroutine

	// The writing goroutine owns these fields until it has ended.
	failed  map[[sha256.Size]byte]uint64 // the last failed requests, by digest
	results map[string]bool              // tool results, by route and id
	totals  schema.ModelTotals
	replay  schema.ModelReplay
	reasons map[string]uint64 // why the layer is not complete, with counts
	odd     map[string]bool   // names of odd members, at most maxHosts
	lines   int               // bytes of all lines
	bases   tape.Bases
	err     error
}

// part is a request that has arrived, or an exchange that has ended.
type part struct {
	x     *exchange
	ended bool
}

// askers are the processes that connected from one address, in order.
type askers struct {
	connections []*traffic // accepted connections
	execs       []uint64
}

// NewRecorder makes a Recorder. The caller must Close it.
func NewRecorder(cfg RecorderConfig) *Recorder {
	r := &Recorder{
		cfg: cfg, blobs: recording.NewBlobs(cfg.Log.Recorder, maxBlobs), done: make(chan struct{}),
		askers: map[string]*askers{}, flying: map[*exchange]bool{}, answered: map[string]bool{},
		failed: map[[sha256.Size]byte]uint64{}, results: map[string]bool{},
		reasons: map[string]uint64{}, odd: map[string]bool{},
	}
	r.came.L, r.changed.L = &r.mu, &r.mu
	looked := make(chan struct{})
	go func() {
		r.look()
		close(looked)
	}()
	go r.write(looked)
	return r
}

// Observed announces that Connected will be called for each connection.
func (r *Recorder) Observed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed = true
}

// Connected records which process connected to the endpoint from an address. Calls are in order of time.
func (r *Recorder) Connected(local string, execID uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.from(local)
	a.execs = append(a.execs, execID)
	r.changed.Broadcast()
}

// Flow records how many bytes went to and from the endpoint, as the kernel counted them.
func (r *Recorder) Flow(out, in uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out, r.in = r.out+out, r.in+in
}

func (r *Recorder) from(address string) *askers {
	a := r.askers[address]
	if a == nil {
		a = &askers{}
		r.askers[address] = a
	}
	return a
}

// accepted records a connection, and returns its number among those from that address.
func (r *Recorder) accepted(remote string, t *traffic) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.from(remote)
	a.connections = append(a.connections, t)
	return len(a.connections) - 1
}

// flow compares the gateway's and the kernel's byte counts. explained means that TCP retransmissions explain the
// difference.
func (r *Recorder) flow() (f schema.ModelFlow, explained bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.KernelToGateway, f.KernelFromGateway = r.out, r.in
	explained = true
	for _, a := range r.askers {
		for _, t := range a.connections[:min(len(a.connections), len(a.execs))] {
			f.Connections++
			f.ToGateway += uint64(t.in.Load())
			f.FromGateway += uint64(t.out.Load())
			explained = explained && t.whole.Load()
		}
		explained = explained && len(a.connections) >= len(a.execs)
	}
	return f, explained && f.KernelToGateway >= f.ToGateway
}

// began records a request that is about to be passed on.
func (r *Recorder) began(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying[x] = true
}

// arrived records a request that has arrived, after began and before add.
func (r *Recorder) arrived(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.arrived = r.cfg.Log.Now() // with the lock held, for Known
	r.passed = time.Now()
	r.fresh = append(r.fresh, part{x, false})
	r.came.Signal()
}

// add records an exchange that has ended.
func (r *Recorder) add(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flying, x)
	r.passed = time.Now()
	if r.taken++; r.taken > maxTaken {
		x.free()
		return
	}
	r.fresh = append(r.fresh, part{x, true})
	r.came.Signal()
}

// full reports whether no more exchanges are accepted.
func (r *Recorder) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken >= maxTaken
}

// Known waits until Calls has got everything that passed before this call, except for answers that have not ended.
func (r *Recorder) Known(int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted++
	defer func() { r.wanted-- }()
	for len(r.fresh) > 0 || r.looking || r.ending() {
		r.changed.Wait()
	}
}

// ending reports whether all bytes of an answer have passed that add has not got yet. r.mu is held.
func (r *Recorder) ending() bool {
	for x := range r.flying {
		if x.ending.Load() {
			return true
		}
	}
	return false
}

// Unsettled reports whether an answer that has not ended started before t.
func (r *Recorder) Unsettled(t int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for x := range r.flying {
		if p := x.passed.Load(); p != 0 && p <= t {
			return true
		}
	}
	return false
}

// look finds tool calls and results in what passed, and then queues the exchange for its line.
func (r *Recorder) look() {
	many := false
	for {
		r.mu.Lock()
		for len(r.fresh) == 0 && !r.closed {
			r.came.Wait()
		}
		if len(r.fresh) == 0 {
			r.mu.Unlock()
			return
		}
		many = many || len(r.fresh) >= maxParts
		held := maxMemory - r.fresh[0].x.sent.memory.left.Load()
		if !many && !r.closed && r.wanted == 0 && held < maxHeld && time.Since(r.passed) < moment {
			r.mu.Unlock()
			time.Sleep(moment)
			continue
		}
		many = many && len(r.fresh) > 1
		p := r.fresh[0]
		r.fresh, r.looking = r.fresh[1:], true
		r.mu.Unlock()
		if p.ended {
			r.lookAtAnswer(p.x)
		} else {
			r.lookAtRequest(p.x)
		}
		r.mu.Lock()
		r.looking = false
		if p.ended {
			r.queue = append(r.queue, p.x)
		}
		r.changed.Broadcast()
		r.mu.Unlock()
	}
}

func (r *Recorder) lookAtRequest(x *exchange) {
	defer r.alone(x.sent)()
	body, err := decoded(x.sent, x.encoding)
	defer func() { x.sent.reuse(body) }() // asks has copies
	if err != nil || x.sent.err != nil {
		return // the line reports it
	}
	x.asks = wire.ReadRequest(x.api, body)
	for _, t := range x.asks.Results {
		if r.cfg.Calls == nil || !r.new(r.answered, x, &t) {
			continue
		}
		r.cfg.Calls.Answered(t.ID, t.Name, t.IsError != nil && *t.IsError, x.arrived)
	}
}

// alone waits until the recorder has no other large body in memory. The caller calls done when it has read the body.
func (r *Recorder) alone(t *passage) (done func()) {
	if t.file == nil && t.size <= large {
		return func() {}
	}
	r.large.Lock()
	return r.large.Unlock
}

// new reports whether no earlier request had this result, and remembers it.
func (r *Recorder) new(known map[string]bool, x *exchange, t *wire.ToolResult) bool {
	key := x.route + " " + t.ID
	if t.ID != "" && known[key] || t.ID == "" && !t.Last {
		return false
	}
	if len(known) < maxKnown && x.refused == "" {
		known[key] = true
	}
	return true
}

func (r *Recorder) lookAtAnswer(x *exchange) {
	if r.cfg.Calls == nil || x.refused != "" || x.status != http.StatusOK || x.response.err != nil {
		return
	}
	// What came before an error counts.
	body, _ := decoded(x.response, x.responseHeader.Get("Content-Encoding"))
	x.told = wire.Read(x.api, x.responseHeader.Get("Content-Type"), bytes.NewReader(body))
	for _, c := range x.told.Calls {
		if c.Complete && !c.ProviderExecuted {
			x.proposals = append(x.proposals,
				r.cfg.Calls.Proposed(valid(c.ID), valid(fullName(&c)), c.Arguments, x.completed(c.End)))
		}
	}
}

// Close writes the remaining lines. The error lists lines that could not be written.
func (r *Recorder) Close() error {
	r.mu.Lock()
	r.closed = true
	r.came.Broadcast()
	r.changed.Broadcast()
	r.mu.Unlock()
	<-r.done
	return r.err
}

// Totals sums up all lines, after Close.
func (r *Recorder) Totals() schema.ModelTotals {
	t := r.totals
	if r.cfg.Replay != nil {
		r.replay.Unused = uint64(r.cfg.Replay.Unused())
		t.Replay = &r.replay
	}
	return t
}

// redact removes secrets from a JSON value.
func (r *Recorder) redact(v []byte) []byte { return r.blobs.RedactJSON(v) }

// write writes the lines. looked is closed when no more exchanges will be queued.
func (r *Recorder) write(looked <-chan struct{}) {
	defer close(r.done)
	defer func() { <-looked }()
	for {
		x, asker := r.next()
		if x == nil {
			return
		}
		r.line(x, asker)
		x.free()
	}
}

// next waits for an exchange, and until its process is known. It returns nil after Close.
func (r *Recorder) next() (x *exchange, asker *uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 {
		if r.closed && len(r.fresh) == 0 && !r.looking {
			return nil, nil
		}
		r.changed.Wait()
	}
	x = r.queue[0]
	late := false
	timer := time.AfterFunc(maxWait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		late = true
		r.changed.Broadcast()
	})
	defer timer.Stop()
	for {
		if a := r.askers[x.remote]; a != nil && x.connection < len(a.execs) {
			asker = new(a.execs[x.connection])
			break
		}
		if !r.observed || r.closed || late || len(r.queue) > maxWaiting {
			break
		}
		r.changed.Wait()
	}
	r.queue = r.queue[1:]
	return x, asker
}

// line writes the line of an exchange.
func (r *Recorder) line(x *exchange, asker *uint64) {
	e := schema.ModelEventBody{
		TNS: x.start, Route: text(x.route), API: text(string(x.api)), Method: cut(x.method, 16),
		Path: cut(x.rawPath, maxPath), Refused: text(x.refused), ExecID: asker,
		FinishReasons: []string{}, ToolCalls: []schema.ModelToolCall{}, ToolResults: []schema.ModelToolResult{},
		Timings: schema.ModelTimings{EndNS: x.end},
		Request: schema.ModelBody{Bytes: x.sent.size}, Response: schema.ModelBody{Bytes: x.response.size},
	}
	if x.status != 0 {
		e.Status = new(x.status)
	}
	if x.first != 0 {
		e.Timings.FirstByteNS = new(x.first)
	}
	if x.sent.size > 0 && x.refused != schema.ModelRefusedCredential {
		r.request(x, &e)
	}
	if x.refused == "" && x.failure != schema.ModelErrorUnreachable && x.failure != schema.ModelErrorNoAnswer {
		r.answer(x, &e)
	}
	x.purse.settle(x, &e.Usage, str(e.ResponseModel))
	if x.refused == "" && x.status == http.StatusOK && x.api.Generates() && !slices.Contains(e.Partial, partialUsage) {
		e.Cost = r.cfg.Prices.Of(str(e.ResponseModel), str(e.RequestModel)).Cost(&e.Usage)
		if x.replayed != nil {
			e.Cost = new(0.0)
		}
	}
	e.Replayed = x.replayed
	if x.failure != "" && (e.ErrorType == nil || x.failure == schema.ModelErrorKey) {
		e.ErrorType, e.ErrorSource = new(x.failure), schema.ModelErrorByRecorder
	}
	failed := x.refused == "" && e.ErrorType != nil
	var key [sha256.Size]byte
	if failed || len(r.failed) > 0 {
		key = x.digest()
	}
	if seq, ok := r.failed[key]; ok {
		e.RetryOf = new(seq)
	}
	var seq uint64
	whole := e.Request.Body
	if !e.Request.Text && whole != nil {
		e.Request.Body, e.Request.Base = r.bases.Cut(whole)
	}
	err := r.cfg.Log.Recorder.Append(schema.ModelPath, func(dst []byte, n uint64) []byte {
		seq = n
		return append(dst, r.fit(&e, n)...)
	})
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("record a request to a model: %w", err)
	}
	if err == nil && x.refused == "" && e.Request.Body != nil {
		r.bases.Keep(seq, whole)
	}
	for _, p := range x.proposals {
		r.cfg.Calls.Recorded(p, seq)
	}
	delete(r.failed, key)
	if failed && len(r.failed) < maxKnown {
		r.failed[key] = seq
	}
	r.count(x, &e)
}

// fit encodes the line of an exchange without what readers of the layer would refuse, so that an agent cannot spoil
// the bundle.
func (r *Recorder) fit(e *schema.ModelEventBody, seq uint64) (line []byte) {
	encode := func() []byte {
		line, err := schema.Line(&schema.ModelEvent{Schema: schema.ModelEventV0, RunID: r.cfg.Log.RunID, Seq: seq,
			ModelEventBody: *e})
		if err != nil {
			return nil
		}
		return bytes.TrimSuffix(line, []byte("\n"))
	}
	defer func() { r.lines += len(line) }()
	line = encode()
	many := r.lines+len(line) > maxLines
	if line != nil && len(line) <= maxLine && !many {
		if _, err := schema.NewLineDecoder(schema.ModelPath).Decode(line); err == nil {
			return line
		}
	}
	r.reasons[reasonLeftOut]++
	e.UsageRaw, e.UnknownKinds, e.Text, e.Odd, e.Fetches = nil, nil, nil, nil, nil
	for _, b := range []*schema.ModelBody{&e.Request, &e.Response} {
		b.LeftOut = b.LeftOut || b.Body != nil
		b.Body, b.Text, b.Base = nil, false, nil
	}
	for i := range e.ToolCalls {
		e.ToolCalls[i].Arguments, e.ToolCalls[i].ArgumentsText = nil, ""
	}
	if many {
		e.ToolCalls, e.ToolResults, e.FinishReasons = []schema.ModelToolCall{}, []schema.ModelToolResult{}, []string{}
	}
	return encode() // plain data always encodes
}

// count adds a line to the totals.
func (r *Recorder) count(x *exchange, e *schema.ModelEventBody) {
	t := &r.totals
	t.Requests++
	switch {
	case x.refused == schema.ModelRefusedMiss:
		if r.replay.Misses++; r.replay.FirstMiss == "" {
			r.replay.FirstMiss = x.missed
		}
	case x.replayed != nil:
		r.replay.Answers++
		if x.replayed.Redacted {
			r.replay.Redacted++
		}
		if x.replayed.Drift > 0 {
			r.replay.Drifted++
		}
	}
	if x.refused != "" {
		t.Refused++
		return
	}
	for _, n := range []struct{ total, one **int64 }{
		{&t.InputTokens, &e.Usage.InputTokens}, {&t.OutputTokens, &e.Usage.OutputTokens},
		{&t.CacheReadInputTokens, &e.Usage.CacheReadInputTokens},
		{&t.CacheCreationInputTokens, &e.Usage.CacheCreationInputTokens},
		{&t.ReasoningOutputTokens, &e.Usage.ReasoningOutputTokens},
	} {
		switch {
		case *n.one == nil:
		case *n.total == nil:
			*n.total = new(**n.one)
		default:
			**n.total = saturated(**n.total, **n.one)
		}
	}
	if len(e.Fetches) > 0 {
		t.ProviderFetches++
		for _, f := range e.Fetches {
			if f.Host != "" && len(t.FetchedHosts) < maxHosts && !slices.Contains(t.FetchedHosts, f.Host) {
				t.FetchedHosts = append(t.FetchedHosts, f.Host)
			}
		}
	}
	if x.status != http.StatusOK || !x.api.Generates() {
		return
	}
	switch {
	case e.Cost == nil:
		t.CostUnknown++
	case t.Cost == nil:
		t.Cost = new(*e.Cost)
	default:
		t.Cost = new(modelfile.Rounded(*t.Cost + *e.Cost))
	}
	if e.Usage.InputTokens == nil || e.Usage.OutputTokens == nil {
		t.UsageUnknown++
	}
}

func saturated(a, b int64) int64 {
	if b > 1<<62-a {
		return 1 << 62
	}
	return a + b
}

// request adds what the request says to the line.
func (r *Recorder) request(x *exchange, e *schema.ModelEventBody) {
	if x.sent.err != nil {
		r.reasons[reasonLost]++
		return
	}
	defer r.alone(x.sent)()
	body, err := decoded(x.sent, x.encoding)
	if err != nil {
		r.reasons[reasonUndecoded]++
		return
	}
	if len(body) > maxBody { // which the line leaves out
		defer x.sent.reuse(body)
	}
	q := x.asks
	if q == nil {
		q = wire.ReadRequest(x.api, body)
	}
	if q.Readable {
		e.Stream = new(q.Stream || x.stream)
	}
	if x.model != "" {
		q.Model = x.model
	}
	e.RequestModel = text(q.Model)
	for _, t := range q.Results {
		if !r.new(r.results, x, &t) {
			continue
		}
		if len(e.ToolResults) < maxListed {
			e.ToolResults = append(e.ToolResults, schema.ModelToolResult{
				ID: text(t.ID), Name: valid(t.Name), IsError: t.IsError,
			})
		}
	}
	for _, f := range q.Fetches {
		e.Fetches = appendFetch(e.Fetches, f)
	}
	e.Request = r.body(x.sent.size, body)
}

// appendFetch adds what a provider does for the agent to a line.
func appendFetch(all []schema.ModelFetch, f wire.Fetch) []schema.ModelFetch {
	if len(all) == maxListed {
		return all
	}
	return append(all, schema.ModelFetch{Kind: string(f.Kind), What: valid(f.What), Host: valid(f.Host)})
}

// fullName returns a tool's name with what the provider names beside it, as agents write both in one word.
func fullName(c *wire.ToolCall) string {
	if c.Namespace == "" || c.ProviderExecuted {
		return c.Name
	}
	return strings.TrimSuffix(c.Namespace, "__") + "__" + c.Name
}

// answer adds what the answer says to the line.
func (r *Recorder) answer(x *exchange, e *schema.ModelEventBody) {
	if x.status == 0 {
		return
	}
	e.ResponseHeaders = told(x.responseHeader)
	if x.response.err != nil {
		r.reasons[reasonLost]++
		return
	}
	body, err := decoded(x.response, x.responseHeader.Get("Content-Encoding"))
	if err != nil && x.failure == "" {
		r.reasons[reasonUndecoded]++
		e.ErrorType, e.ErrorSource = new(schema.ModelErrorEncoding), schema.ModelErrorByRecorder
	}
	if err == nil {
		e.Response = r.body(x.response.size, body)
	}
	kind := x.responseHeader.Get("Content-Type")
	if x.status >= http.StatusBadRequest {
		name := wire.ReadError(x.api, kind, bytes.NewReader(body))
		e.ErrorType, e.ErrorSource = text(cmp.Or(name, strconv.Itoa(x.status))), schema.ModelErrorByProvider
		return
	}
	a := x.told
	if a == nil {
		a = wire.Read(x.api, kind, bytes.NewReader(body))
	}
	e.ResponseModel, e.ResponseID = text(a.Model), text(a.ID)
	if a.ErrorType != "" {
		e.ErrorType, e.ErrorSource = text(a.ErrorType), schema.ModelErrorByProvider
	}
	for _, f := range a.FinishReasons {
		e.FinishReasons = append(e.FinishReasons, valid(f))
	}
	e.Usage = schema.ModelUsage(a.Usage)
	if v, ok := r.redacted(a.UsageRaw); ok {
		e.UsageRaw = []byte(v)
	}
	r.calls(a.Calls, e)
	r.doubts(a, e)
	switch generates := x.status == http.StatusOK && err == nil; {
	case x.failure == schema.ModelErrorLeft && a.Whole && x.api.Generates():
		x.failure = "" // an agent need not wait for what follows the end of an answer
	case x.failure == "" && generates && a.Unreadable:
		x.failure = schema.ModelErrorUnreadable
	case x.failure == "" && generates && !a.Whole:
		x.failure = schema.ModelErrorBroken // the connection itself had no error
	}
	if a.Text == "" || r.cfg.Digests {
		return
	}
	var leftOut bool
	if e.Text, leftOut = r.text(r.blobs.Redact([]byte(a.Text))); leftOut {
		e.Text = nil
		r.reasons[reasonLeftOut]++
	}
}

// Members of a line that may be partial.
const (
	partialUsage  = "usage"
	partialCalls  = "tool_calls"
	partialText   = "text"
	partialAnswer = "answer"
)

// doubts adds what was not understood of an answer to its line, and which of the line's members it concerns.
func (r *Recorder) doubts(a *wire.Answer, e *schema.ModelEventBody) {
	concerned := map[string]bool{}
	if e.Unknown = a.Unknown; a.Unknown > 0 {
		concerned[partialAnswer] = true
		r.reasons[reasonUnknown]++
		for _, k := range a.UnknownKinds {
			e.UnknownKinds = append(e.UnknownKinds, valid(k))
		}
	}
	for _, o := range a.Odd {
		odd := schema.ModelOdd{Member: o.Member, Count: o.Count}
		if !r.cfg.Digests {
			odd.Raw = valid(string(r.blobs.Redact([]byte(o.Raw))))
		}
		e.Odd = append(e.Odd, odd)
		concerned[concerns(o.Member)] = true
		if len(r.odd) < maxHosts {
			r.odd[o.Member] = true
		}
	}
	if len(a.Odd) > 0 {
		r.reasons[reasonOdd]++
	}
	e.Partial = slices.Sorted(maps.Keys(concerned))
	for _, c := range a.Calls {
		if f := (wire.Fetch{Kind: wire.FetchTool, What: c.Name}); c.ProviderExecuted &&
			!slices.ContainsFunc(e.Fetches, func(has schema.ModelFetch) bool {
				return has.What == c.Name || has.What == c.Namespace
			}) {
			e.Fetches = appendFetch(e.Fetches, f)
		}
	}
}

// concerns returns which member of a line an odd member of an answer concerns.
func concerns(member string) string {
	has := func(part string) bool { return strings.Contains(member, part) }
	switch {
	case strings.HasPrefix(member, "usage"):
		return partialUsage
	case has("tool_calls"), has("function"), has("custom"), has("arguments"), has("partial_json"), has("input"):
		return partialCalls
	case strings.HasSuffix(member, "content"), strings.HasSuffix(member, "text"):
		return partialText
	}
	return partialAnswer
}

// told returns the headers of an answer that clients act on.
func told(h http.Header) map[string]string {
	var all map[string]string
	for _, name := range []string{"content-type", "retry-after", "retry-after-ms", "x-should-retry"} {
		if v := h.Get(name); v != "" && len(v) <= maxPath {
			if all == nil {
				all = map[string]string{}
			}
			all[name] = valid(v)
		}
	}
	return all
}

// calls adds the tool calls of an answer to the line.
func (r *Recorder) calls(calls []wire.ToolCall, e *schema.ModelEventBody) {
	size := 0
	for i, c := range calls {
		if len(e.ToolCalls) == maxListed {
			r.reasons[reasonLeftOut]++
			return
		}
		call := schema.ModelToolCall{ID: text(c.ID), Name: valid(c.Name), Namespace: valid(c.Namespace),
			ProviderExecuted: c.ProviderExecuted, Complete: c.Complete}
		if c.ID == "" {
			call.Index, call.Doubt = new(i), doubtNoID
		}
		if !r.cfg.Digests {
			whole := true
			if c.Arguments != nil {
				var v jsontext.Value
				if v, whole = r.redacted(c.Arguments); whole {
					if v, whole = r.parts(v, maxCallText); whole {
						call.Arguments = []byte(v)
					}
				}
			} else if len(c.ArgumentsText) <= maxCallText {
				call.ArgumentsText = valid(string(r.blobs.Redact([]byte(c.ArgumentsText))))
			} else {
				whole = false
			}
			if size += len(call.Arguments) + len(call.ArgumentsText); size > maxInLine {
				call.Arguments, call.ArgumentsText, whole = nil, "", false
			}
			if !whole {
				r.reasons[reasonLeftOut]++
			}
		}
		e.ToolCalls = append(e.ToolCalls, call)
	}
}

// redacted returns a JSON value without secrets, and whether it still is valid JSON.
func (r *Recorder) redacted(v jsontext.Value) (jsontext.Value, bool) {
	if v == nil {
		return nil, false
	}
	clean := jsontext.Value(r.blobs.RedactJSON(v)).Clone()
	return clean, clean.Compact() == nil
}

// body returns a body as a line has it. bytes is its length on the wire.
func (r *Recorder) body(bytes int64, body []byte) schema.ModelBody {
	b := schema.ModelBody{Bytes: bytes}
	switch {
	case len(body) == 0:
		return b
	case len(body) > maxBody:
		b.LeftOut = true
		r.reasons[reasonLeftOut]++
		return b
	}
	v := jsontext.Value(body)
	k := v.Kind()
	if b.Text = k != '{' && k != '[' || !v.IsValid(); b.Text {
		clean := r.blobs.Redact(body)
		b.SHA256 = digest(clean)
		if !r.cfg.Digests {
			b.Body, b.LeftOut = r.text(clean)
		}
	} else {
		clean := r.blobs.RedactJSON(body)
		b.SHA256 = digest(clean)
		if !r.cfg.Digests {
			parts, whole := r.parts(clean, maxSkeleton)
			b.Body, b.LeftOut = []byte(parts), !whole
		}
	}
	if b.LeftOut {
		b.Body, b.Text = nil, false
		r.reasons[reasonLeftOut]++
	}
	if r.cfg.Digests {
		b.Text = false
	}
	return b
}

// text returns a text as JSON: the text itself, or the name of the member that has it.
func (r *Recorder) text(b []byte) (v []byte, leftOut bool) {
	if len(b) >= minBlob || strings.HasPrefix(string(b), schema.BlobsDir) {
		name, ok := r.blobs.Keep(b)
		if !ok {
			return nil, true
		}
		b = []byte(name)
	}
	v, err := jsontext.AppendQuote(nil, valid(string(b)))
	return v, err != nil
}

// parts replaces long texts in a JSON value by members of the bundle. It reports whether the result is complete
// within most bytes.
func (r *Recorder) parts(v jsontext.Value, most int) (jsontext.Value, bool) {
	var out bytes.Buffer
	in, enc := jsontext.NewDecoder(bytes.NewBuffer(v)), jsontext.NewEncoder(&out)
	for {
		kind := in.PeekKind()
		if kind == 0 {
			break
		}
		isName := false
		if k, n := in.StackIndex(in.StackDepth()); k == '{' && n%2 == 0 {
			isName = true
		}
		if kind == '"' && !isName {
			quoted, err := in.ReadValue()
			if err != nil {
				return nil, false
			}
			if s := unquoted(quoted); len(s) >= minBlob || bytes.HasPrefix(s, []byte(schema.BlobsDir)) {
				name, ok := r.blobs.Keep(s)
				if !ok {
					return nil, false
				}
				quoted = jsontext.Value(strconv.Quote(name))
			}
			if enc.WriteValue(quoted) != nil || out.Len() > most {
				return nil, false
			}
			continue
		}
		tok, err := in.ReadToken()
		if err != nil || enc.WriteToken(tok) != nil || out.Len() > most {
			return nil, false
		}
	}
	p := jsontext.Value(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
	return p, p.IsValid()
}

// unquoted returns the text of a JSON string, which is a part of the string if nothing is escaped in it.
func unquoted(s jsontext.Value) []byte {
	if bytes.IndexByte(s, '\\') < 0 {
		return s[1 : len(s)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, s) // it was read as a string
	return text
}

// Health reports how complete the model layer is, after Close. It is complete if the kernel and the endpoint counted
// the same bytes to the endpoint. h already has the kernel layer's claims.
func (r *Recorder) Health(h *schema.ObservationHealth) {
	h.ModelLayer = schema.Unconfirmed
	if h.KernelLayer != schema.Absent && r.observed {
		flow, explained := r.flow()
		h.ModelFlow = &flow
		switch {
		case h.KernelLayer != schema.Complete:
		case flow.ToGateway == flow.KernelToGateway || explained:
			h.ModelLayer = schema.Complete
		default:
			h.ModelLayer = schema.Partial
			h.Reasons = append(h.Reasons, schema.Reason{
				Subject: "model", Code: reasonBytes,
				Message: fmt.Sprintf("the kernel counted %d bytes from the command to the model "+
					"gateway, and the gateway "+
					"read %d: what they said may be missing", flow.KernelToGateway, flow.ToGateway),
				Remedy: "let the agent wait for its answers before it ends",
			})
		}
	}
	if c := h.Layers[schema.LayerName(schema.ModelPath)]; c.Dropped > 0 {
		h.ModelLayer = schema.Partial
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "model", Code: reasonUnwritten,
			Message: schema.Count(int(c.Dropped), "request", "requests") + " to a model could not be written: " +
				"nothing says what was asked and answered",
			Remedy: "make room on the disk that holds the spool",
		})
	}
	if r.taken > maxTaken {
		r.reasons[reasonMany] = r.taken - maxTaken
	}
	for _, why := range []struct{ code, one, many, remedy string }{
		{reasonUnknown, "answer had", "answers had",
			"see unknown_kinds in the model layer; a newer assay-run may know them"},
		{reasonOdd, "answer had", "answers had", "see odd and partial in the model layer"},
		{reasonUndecoded, "body", "bodies", "let the agent and the provider use gzip, zstd or no content encoding"},
		{reasonLeftOut, "body or tool call was", "bodies or tool calls were", ""},
		{reasonMany, "request was", "requests were", ""},
		{reasonLost, "request or answer was", "requests or answers were", "make room on the disk that holds the spool"},
	} {
		n := r.reasons[why.code]
		if n == 0 {
			continue
		}
		h.ModelLayer = schema.Partial
		message := schema.Count(int(n), why.one, why.many)
		switch why.code {
		case reasonUnknown:
			message += " parts of kinds that this version does not know"
		case reasonOdd:
			message += " members of another type than the API says (" +
				strings.Join(slices.Sorted(maps.Keys(r.odd)), ", ") + "): their values are not known, all others are"
		case reasonUndecoded:
			message += " could not be decoded: the lines say nothing of what they had"
		default:
			message += " too much to keep"
		}
		h.Reasons = append(h.Reasons,
			schema.Reason{Subject: "model", Code: why.code, Message: message, Remedy: why.remedy})
	}
}

// decoded returns a body without its content encoding, which must not be changed: it may be the passage's own memory.
// With an error, it returns what came before the error.
func decoded(t *passage, encoding string) ([]byte, error) {
	body := t.reader()
	switch encoding = strings.ToLower(strings.TrimSpace(encoding)); encoding {
	case "", "identity":
		if t.file == nil {
			return t.held, nil
		}
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = z
	case "zstd":
		z, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDecoded))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		body = z
	default:
		return nil, fmt.Errorf("the content encoding %.40q is not known", encoding)
	}
	b := bytes.NewBuffer(decodedInto(int(min(t.size, maxDecoded)) + bytes.MinRead))
	_, err := b.ReadFrom(io.LimitReader(body, maxDecoded+1))
	if err == nil && b.Len() > maxDecoded {
		b.Truncate(maxDecoded)
		err = errors.New("the body is too long")
	}
	return b.Bytes(), err
}

func digest(b []byte) *string {
	sum := sha256.Sum256(b)
	return new("sha256:" + hex.EncodeToString(sum[:]))
}

// text returns a pointer to s, or nil if s is empty.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return new(valid(s))
}

// str returns the text, or "" for nil.
func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func cut(s string, most int) string { return valid(s[:min(len(s), most)]) }
