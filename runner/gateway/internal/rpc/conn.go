package rpc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Conn is one client.
type Conn struct {
	server   *Server
	identity string
	session  Session
	wire     wire
	out      *outbox
	ctx      context.Context // ends with the server
	lost     context.Context // ends with the connection
	lose     context.CancelFunc
	work     sync.WaitGroup // requests in flight, and functions of Beside
	over     chan string    // receives why the client ended, when nothing more can be read

	unread   []message // a goroutine waits for takeOver
	takeOver chan struct{}
	ready    atomic.Bool // a goroutine waits for takeOver

	mu       sync.Mutex
	pending  map[uint64]*pending // the server's own requests
	lastID   uint64
	gone     bool                // no answer can come any more
	draining bool                // new requests are refused
	inflight map[string]*Request // by id
	queue    []*Request          // requests that wait for their turn
	running  int                 // running requests
	bytes    int                 // of the queued and running requests
}

// reader is a goroutine that reads a connection's messages.
type reader struct {
	reads bool // no other goroutine has taken over
}

// read handles messages until there are no more, or another goroutine has taken over and this one is not needed to
// take over again.
func (c *Conn) read() {
	self := &reader{reads: true}
	for self.reads || c.stayReady(self) {
		m, err := c.next()
		if err != nil {
			reason := c.why(err)
			c.end() // calls that wait for an answer get none
			c.over <- reason
			return
		}
		c.handle(m, self)
	}
}

// readOn lets another goroutine read the next messages.
func (c *Conn) readOn() {
	select {
	case c.takeOver <- struct{}{}:
	default:
		go c.read()
	}
}

// stayReady keeps one goroutine ready to take over, since its stack has already grown: growing another goroutine's
// stack for each call would cost a tenth of the call. It reports whether this goroutine reads again.
func (c *Conn) stayReady(self *reader) bool {
	if !c.ready.CompareAndSwap(false, true) {
		return false // another goroutine is ready
	}
	defer c.ready.Store(false)
	select {
	case <-c.takeOver:
		self.reads = true
	case <-c.lost.Done():
	}
	return self.reads
}

// next returns the next message, from a batch or from the wire.
func (c *Conn) next() (message, error) {
	for len(c.unread) == 0 {
		b, err := c.wire.read()
		if err != nil {
			return message{}, err
		}
		c.unread = c.unpack(b)
	}
	m := c.unread[0]
	c.unread = c.unread[1:]
	return m, nil
}

// why answers a message that cannot be read, and returns why the connection ends if that is the client's fault.
func (c *Conn) why(err error) (reason string) {
	failure := (*jsonrpc.Error)(nil)
	switch {
	case errors.Is(err, errTooLarge):
		failure = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v: at most %d bytes", err, c.server.limits.Message)
	case errors.Is(err, errTooSlow):
		failure = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v: within %v", err, c.server.limits.MessageTimeout)
	case errors.Is(err, errNoRoom):
		failure = c.server.noRoom()
	case errors.Is(err, errNotText):
		failure = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v", err)
	case errors.Is(err, errProtocol):
		c.server.refused.Add(1)
		return err.Error()
	default:
		return ""
	}
	c.server.refused.Add(1)
	c.send(jsonrpc.AppendError(nil, nil, failure))
	return err.Error()
}

// send writes a message. It is dropped if the client is gone.
func (c *Conn) send(msg []byte) { c.out.send(msg) }

// Notify sends a notification and reports whether the client is still connected.
func (c *Conn) Notify(method string, params any) bool {
	msg, err := jsonrpc.AppendRequest(nil, nil, method, params)
	return err == nil && c.out.send(msg) == nil
}

// Identity is the client's identity from [Config.Authenticate]; "" over a unix socket.
func (c *Conn) Identity() string { return c.identity }

// Socket is the unix socket that the client uses, which says who it is, or nil.
func (c *Conn) Socket() *net.UnixConn { return c.wire.socket() }

// Beside runs f in addition to the client's requests, with a context that ends with the connection. It reports false
// if the connection accepts nothing new.
func (c *Conn) Beside(f func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return false
	}
	c.work.Go(func() { f(c.lost) })
	return true
}

// idle waits until no request is in flight, or ctx ends. New requests are refused.
func (c *Conn) idle(ctx context.Context) {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	waits(ctx, &c.work)
}

// end ends all waits for answers, since none can come any more.
func (c *Conn) end() {
	c.mu.Lock()
	c.gone = true
	pending := make([]uint64, 0, len(c.pending))
	for id := range c.pending {
		pending = append(pending, id)
	}
	c.mu.Unlock()
	c.lose()
	for _, id := range pending {
		c.deliver(id, Answer{Err: ErrGone})
	}
}

// message is one received message, alone or in a batch.
type message struct {
	raw     jsontext.Value
	respond func([]byte) // gets the response, or nil if there is none
}

// handle handles one message.
func (c *Conn) handle(m message, by *reader) {
	f, failure := decode(m.raw, c.server.limits.Depth)
	if failure != nil {
		c.server.refused.Add(1)
		id, response := jsonrpc.IDOf(m.raw)
		if response {
			c.spoiled(id, failure)
			id = nil // the id of a request of the server
		}
		m.respond(jsonrpc.AppendError(nil, id, failure))
		return
	}
	if !f.IsRequest() {
		c.answered(f)
		m.respond(nil)
		return
	}
	r := &Request{Method: f.Method, Params: f.Params, conn: c, id: f.ID, size: len(m.raw), respond: m.respond,
		reader: by}
	switch {
	case c.ctx.Err() != nil:
		r.Answer(nil, jsonrpc.Errorf(CodeClosing, "the gateway is closing"))
	case c.isInFlight(r.id):
		// Only one answer may carry the id.
		r.Answer(nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "another request with this id is in flight"))
	case r.Method == "$/cancelRequest":
		r.Answer(c.cancelRequest(r))
	default:
		c.session.Serve(r)
	}
}

// Reasons why a call has no answer.
var (
	ErrGone      = errors.New("the client is gone")
	ErrDeadline  = errors.New("the client did not answer in time")
	ErrCancelled = errors.New("the call was cancelled")
)

// Answer is the result of a call. One of its fields is set.
type Answer struct {
	Result jsontext.Value
	Error  jsontext.Value // the client's error, verbatim
	Err    error          // ErrGone, ErrDeadline or ErrCancelled
}

// pending is a call that waits for its answer. Whoever removes it from Conn.pending ends the wait.
type pending struct {
	answer chan Answer
	ended  func()
}

// Call sends the client a request while its own request r is being served, and waits for the answer, until the
// deadline, or until ctx or the connection ends. ended is called once, when the answer has been read or is no longer
// waited for, at the latest when Call returns.
func (r *Request) Call(ctx context.Context, method string, params any, deadline time.Duration, ended func()) Answer {
	c := r.conn
	waiting := &pending{answer: make(chan Answer, 1), ended: ended}
	id, ok := c.expect(waiting)
	if !ok {
		ended()
		return Answer{Err: ErrGone}
	}
	msg, err := jsonrpc.AppendRequest(nil, jsontext.Value(strconv.AppendQuote(nil, strconv.FormatUint(id, 10))), method,
		params)
	if err == nil {
		err = c.out.send(msg)
	}
	if err != nil {
		c.deliver(id, Answer{Err: ErrGone}) // unless the end was noticed earlier
	}
	r.Wait()
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case a := <-waiting.answer:
		return a
	case <-timer.C:
		c.deliver(id, Answer{Err: ErrDeadline})
	case <-ctx.Done():
		c.deliver(id, Answer{Err: ErrCancelled})
	}
	return <-waiting.answer
}

// expect gives a call its id, unless no answer can come any more.
func (c *Conn) expect(p *pending) (id uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return 0, false
	}
	c.lastID++
	c.pending[c.lastID] = p
	return c.lastID, true
}

// deliver ends the wait for an answer, and reports whether somebody waited. Of two answers, the second finds nobody.
func (c *Conn) deliver(id uint64, a Answer) bool {
	c.mu.Lock()
	p := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if p == nil {
		return false
	}
	p.ended()
	p.answer <- a
	return true
}

// answered delivers a client's answer.
func (c *Conn) answered(m *jsonrpc.Message) {
	if id, ours := callID(m.ID); !ours || !c.deliver(id, Answer{Result: m.Result, Error: m.Error}) {
		c.server.late.Add(1)
	}
}

// callID returns the id of a call of the server. It is sent as a string of digits, and some clients return a number.
func callID(raw jsontext.Value) (id uint64, ours bool) {
	id, err := strconv.ParseUint(jsonrpc.IDText(raw), 10, 64)
	return id, err == nil
}

// spoiled fails the call whose answer was refused, since no other answer may come.
func (c *Conn) spoiled(raw jsontext.Value, failure *jsonrpc.Error) {
	if id, ours := callID(raw); ours {
		body, err := json.Marshal(failure)
		if err != nil {
			body = []byte("{}") // plain data always encodes
		}
		c.deliver(id, Answer{Error: body})
	}
}

// Memory of a request in flight, in bytes: its message, its decoded parameters, the request that passes them on, and
// bookkeeping. Limits.InFlight bounds the goroutines.
const (
	requestCopies   = 3
	requestOverhead = 256
)

// Request is a client's request or, without an id, its notification.
type Request struct {
	Method string
	Params jsontext.Value

	conn    *Conn
	id      jsontext.Value
	size    int // of its message
	respond func([]byte)
	reader  *reader // serves it; nil if that goroutine does not read

	job       func(ctx context.Context) (any, *jsonrpc.Error)
	cancel    context.CancelFunc // set once it runs
	cancelled bool
}

// Answer answers a request. It must be called exactly once.
func (r *Request) Answer(result any, failure *jsonrpc.Error) {
	if failure != nil {
		r.conn.server.refused.Add(1)
	}
	if r.id == nil {
		r.respond(nil)
		return
	}
	if failure != nil {
		r.respond(jsonrpc.AppendError(nil, r.id, failure))
		return
	}
	r.respond(jsonrpc.AppendResult(nil, r.id, result))
}

// Wait lets the connection's next message be read, since what follows may take long. Only the goroutine that serves
// the request may call it.
func (r *Request) Wait() {
	if r.reader != nil && r.reader.reads {
		r.reader.reads = false
		r.conn.readOn()
	}
}

// Go serves the request with job, which may wait, and answers with its result. The job runs in this goroutine if it
// may start now, otherwise when its turn comes. Go reports false if the client has too much in flight: nothing was
// answered, and the caller may answer with [Request.Busy].
func (r *Request) Go(job func(ctx context.Context) (any, *jsonrpc.Error)) bool {
	r.job = job
	admitted, now := r.conn.admit(r)
	if now {
		r.conn.run(r)
	}
	return admitted
}

// Busy answers that too much is in flight.
func (r *Request) Busy() { r.Answer(nil, r.conn.server.noRoom()) }

// Context ends when the server closes.
func (r *Request) Context() context.Context { return r.conn.ctx }

func (r *Request) cost() int { return requestCopies*r.size + requestOverhead }

// admit accepts a request, to run now or to wait for its turn, unless too much is in flight.
func (c *Conn) admit(r *Request) (admitted, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.draining || c.bytes+r.cost() > c.server.limits.InFlightBytes || !c.server.reserve(r.cost()):
		return false, false
	case c.running >= c.server.limits.InFlight:
		r.reader = nil
		c.queue = append(c.queue, r)
	case c.server.running.Add(1) > int64(c.server.limits.InFlightAll):
		c.server.running.Add(-1)
		c.server.release(r.cost())
		return false, false
	default:
		c.running++
		now = true
	}
	c.bytes += r.cost()
	if r.id != nil {
		c.inflight[jsonrpc.IDKey(r.id)] = r
	}
	c.work.Add(1)
	return true, now
}

// isInFlight reports whether a request with this id has no answer yet.
func (c *Conn) isInFlight(id jsontext.Value) bool {
	if id == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inflight[jsonrpc.IDKey(id)] != nil
}

// run runs a request's job. Then, unless this goroutine has to read, it runs the jobs that wait for their turn.
func (c *Conn) run(r *Request) {
	for {
		ctx, cancel := context.WithCancel(c.ctx)
		c.mu.Lock()
		r.cancel = cancel
		if r.cancelled {
			cancel()
		}
		c.mu.Unlock()
		result, failure := r.job(ctx)
		c.free(r) // before the answer, so that the client can send more
		r.Answer(result, failure)
		cancel()
		next := c.finished()
		if next == nil {
			return
		}
		if r.reader != nil && r.reader.reads {
			go c.run(next)
			return
		}
		r = next
	}
}

// finished gives the place of a request that has ended to the next one in the queue.
func (c *Conn) finished() (next *Request) {
	defer c.work.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.running--
		c.server.running.Add(-1)
		return nil
	}
	next = c.queue[0]
	c.queue[0] = nil
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return next
}

// free releases what a request holds.
func (c *Conn) free(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= r.cost()
	c.server.release(r.cost())
	if id := jsonrpc.IDKey(r.id); c.inflight[id] == r {
		delete(c.inflight, id)
	}
}

// cancelRequest handles $/cancelRequest {id}: the request in flight with that id ends as cancelled. It is still
// answered.
func (c *Conn) cancelRequest(r *Request) (any, *jsonrpc.Error) {
	var p struct {
		ID jsontext.Value `json:"id"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.inflight[jsonrpc.IDKey(p.ID)]
	if found != nil {
		found.cancelled = true
		if found.cancel != nil {
			found.cancel()
		}
	}
	return map[string]any{"cancelled": found != nil}, nil
}

// maxBatch limits the messages of a batch.
const maxBatch = 1000

// unpack returns the messages in a text: one, or those of a batch. It answers a malformed batch itself.
func (c *Conn) unpack(b []byte) []message {
	if first := bytes.TrimLeft(b, " \t\r\n"); len(first) == 0 || first[0] != '[' {
		return []message{{b, func(response []byte) {
			if response != nil {
				c.send(response)
			}
		}}}
	}
	list, failure := []jsontext.Value(nil), (*jsonrpc.Error)(nil)
	if err := jsonrpc.CheckText(b, c.server.limits.Depth); err != nil {
		failure = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v", err)
	} else if list, _, err = jsonrpc.Split(b); err != nil {
		failure = jsonrpc.Errorf(jsonrpc.CodeParse, "%v", err)
	} else if len(list) == 0 || len(list) > maxBatch {
		failure = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "a batch must have 1 to %d messages, this one has %d",
			maxBatch, len(list))
	}
	if failure != nil {
		c.server.refused.Add(1)
		c.send(jsonrpc.AppendError(nil, nil, failure))
		return nil
	}
	responses := &batch{send: c.send, open: len(list)}
	messages := make([]message, len(list))
	for i, raw := range list {
		messages[i] = message{raw, responses.add}
	}
	return messages
}

// batch collects the responses of a batch. They are sent together, in any order.
type batch struct {
	send func([]byte)
	mu   sync.Mutex
	buf  []byte
	open int
}

// add adds the response to one message, or nil if it has none.
func (b *batch) add(response []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if response != nil {
		sep := byte(',')
		if len(b.buf) == 0 {
			sep = '['
		}
		b.buf = append(append(b.buf, sep), response...)
	}
	if b.open--; b.open == 0 && len(b.buf) > 0 {
		b.send(append(b.buf, ']'))
	}
}

// Error codes of this server.
const (
	// CodeBusy means too many requests or connections: the client may try again.
	CodeBusy    = -32001
	CodeClosing = -32005 // the server is closing
)

// decode decodes one message. Its values point into b.
func decode(b []byte, maxDepth int) (*jsonrpc.Message, *jsonrpc.Error) {
	if err := jsonrpc.CheckText(b, maxDepth); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v", err)
	}
	m, err := jsonrpc.Decode(b)
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParse, "not valid JSON: %s", jsonrpc.Brief(err))
	}
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", jsonrpc.Brief(err))
	}
	return m, nil
}

// Decode reads the parameters strictly: unknown and duplicate keys are errors that name the key.
func (r *Request) Decode(into any) *jsonrpc.Error {
	raw := r.Params
	if raw == nil {
		raw = jsontext.Value("{}")
	}
	if raw.Kind() != '{' {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params must be an object")
	}
	if err := json.Unmarshal(raw, into, json.RejectUnknownMembers(true)); err != nil {
		var sem *json.SemanticError
		if errors.As(err, &sem) && sem.JSONPointer != "" {
			if errors.Is(err, json.ErrUnknownName) {
				return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params%.100s: unknown key", sem.JSONPointer)
			}
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params%.100s: %s", sem.JSONPointer, jsonrpc.Brief(err))
		}
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params: %s", jsonrpc.Brief(err))
	}
	return nil
}
