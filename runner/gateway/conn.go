package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// conn is one client. Its reader handles requests one by one and in order,
// except those that wait for something, which get a goroutine each and are
// bounded; so answers to our own requests are always read.
type conn struct {
	g    *Gateway
	wire wire
	out  *outbox

	ctx    context.Context // ends with the connection or the gateway
	cancel context.CancelFunc
	work   sync.WaitGroup // requests in flight and subscriptions

	mu       sync.Mutex
	tools    map[string]*tool
	rec      *recording // that its calls are recorded in
	scope    *scope
	pending  map[uint64]chan callback // our requests
	lastID   uint64
	lost     bool            // no answer can come any more
	draining bool            // nothing new is taken on
	inflight map[string]*job // by request id
	queue    []*job          // waiting for a worker, in order
	workers  int             // parked ones included
	parked   int
	handoff  chan *job     // to a parked worker; has room for all of them
	over     chan struct{} // closed when no job can come any more
	bytes    int           // of the jobs queued and running
	subs     map[string]*subscription
	lastSub  uint64
}

// callback is the answer to one of our requests.
type callback struct {
	result jsontext.Value
	err    jsontext.Value
	lost   bool
}

// serve runs a connection until its end. It returns when nothing of it is left.
func (g *Gateway) serve(w wire) {
	c := &conn{
		g: g, wire: w, out: newOutbox(w, g.limits.Outbox),
		tools: map[string]*tool{}, pending: map[uint64]chan callback{}, inflight: map[string]*job{},
		subs: map[string]*subscription{}, handoff: make(chan *job, maxParked), over: make(chan struct{}),
	}
	defer close(c.over)
	c.ctx, c.cancel = context.WithCancel(g.ctx)
	defer c.cancel()
	if g.run != nil {
		c.rec, c.scope = g.run, g.run.scope
		g.run.attach(c)
	} else {
		c.scope = newScope(g.cfg.Policy)
	}
	if !g.add(c) {
		w.finish("the gateway is closing")
		return
	}
	defer g.remove(c)

	reason := c.readAll()
	c.lose()
	c.work.Wait()
	c.out.flush()
	w.finish(reason)
	c.mu.Lock()
	rec := c.rec
	c.mu.Unlock()
	if rec != nil {
		rec.detach(c)
	}
}

// readAll handles messages until there are no more, and tells why when it is
// the client's fault.
func (c *conn) readAll() (reason string) {
	for {
		b, err := c.wire.read()
		switch {
		case err == nil:
			c.handle(b)
			continue
		case errors.Is(err, errTooLarge):
			c.refuse(nil, errorf(codeInvalidRequest, "%v: at most %d bytes", err, c.g.limits.Message))
			return err.Error()
		case errors.Is(err, errTooSlow):
			c.refuse(nil, errorf(codeInvalidRequest, "%v: within %v", err, c.g.limits.MessageTimeout))
			return err.Error()
		case errors.Is(err, errNotText):
			c.refuse(nil, errorf(codeInvalidRequest, "%v", err))
			return err.Error()
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		}
		return ""
	}
}

// handle takes one message, or a batch of them.
func (c *conn) handle(b []byte) {
	if i := firstByte(b); i == '[' {
		c.handleBatch(b)
		return
	}
	c.handleOne(b, c.send)
}

func firstByte(b []byte) byte {
	for _, ch := range b {
		if ch != ' ' && ch != '\t' && ch != '\r' && ch != '\n' {
			return ch
		}
	}
	return 0
}

// maxBatch bounds the messages of a JSON-RPC batch.
const maxBatch = 1000

// handleBatch handles the messages of an array; their responses come back in
// one, in any order.
func (c *conn) handleBatch(b []byte) {
	var list []jsontext.Value
	if err := scan(b, c.g.limits.Depth); err != nil {
		c.refuse(nil, errorf(codeInvalidRequest, "%v", err))
		return
	}
	if err := json.Unmarshal(b, &list); err != nil {
		c.refuse(nil, errorf(codeParse, "not valid JSON: %s", brief(err)))
		return
	}
	if len(list) == 0 || len(list) > maxBatch {
		c.refuse(nil, errorf(codeInvalidRequest, "a batch has 1 to %d messages, this one has %d", maxBatch, len(list)))
		return
	}
	batch := &batch{send: c.send, open: len(list)}
	for _, m := range list {
		c.handleOne(m, batch.add)
	}
}

// batch collects the responses of a JSON-RPC batch.
type batch struct {
	send func([]byte)
	mu   sync.Mutex
	buf  []byte
	open int
}

// add takes the response to one message; nil when there is none.
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

// handleOne takes one message and calls respond exactly once, with nil when
// the message gets no response.
func (c *conn) handleOne(b []byte, respond func([]byte)) {
	m, failure := decodeMessage(b, c.g.limits.Depth)
	if failure != nil {
		c.g.count.add(func(m *Metrics) { m.Refused++ })
		var id jsontext.Value
		if m != nil {
			id = m.ID
		}
		respond(appendResponse(nil, id, nil, failure))
		return
	}
	if m.Method == nil {
		c.answered(m)
		respond(nil)
		return
	}
	r := &request{conn: c, id: m.ID, method: *m.Method, params: m.Params, size: len(b), respond: respond}
	c.dispatch(r)
}

// request is a client's request or, without an id, its notification.
type request struct {
	conn    *conn
	id      jsontext.Value
	method  string
	params  jsontext.Value
	size    int
	respond func([]byte)
}

// done answers a request. It is called exactly once.
func (r *request) done(result any, failure *rpcError) {
	if failure != nil {
		r.conn.g.count.add(func(m *Metrics) { m.Refused++ })
	}
	if r.id == nil {
		r.respond(nil)
		return
	}
	r.respond(appendResponse(nil, r.id, result, failure))
}

// send writes a message; nil is none. A client that is gone gets nothing.
func (c *conn) send(msg []byte) {
	if msg != nil {
		c.out.send(msg)
	}
}

// refuse answers what is not even a request.
func (c *conn) refuse(id jsontext.Value, failure *rpcError) {
	c.g.count.add(func(m *Metrics) { m.Refused++ })
	c.send(appendResponse(nil, id, nil, failure))
}

// call sends the client a request and waits for the answer. outcome is nil
// when the client answered with a result.
func (c *conn) call(ctx context.Context, method string, params any, deadline time.Duration) (result, failure jsontext.Value, outcome *schema.CallOutcome) {
	failed := func(code string, retryable bool) *schema.CallOutcome {
		return &schema.CallOutcome{Kind: schema.CallExecutionFailed, Code: code, Retryable: &retryable}
	}
	ch := make(chan callback, 1)
	c.mu.Lock()
	if c.lost {
		c.mu.Unlock()
		return nil, nil, failed(schema.FailCallbackLost, true)
	}
	c.lastID++
	id := c.lastID
	c.pending[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}()
	msg, err := appendRequest(nil, id, method, params)
	if err != nil || c.out.send(msg) != nil {
		return nil, nil, failed(schema.FailCallbackLost, true)
	}
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case cb := <-ch:
		switch {
		case cb.lost:
			return nil, nil, failed(schema.FailCallbackLost, true)
		case cb.err != nil:
			return nil, cb.err, failed(schema.FailToolError, false)
		}
		return cb.result, nil, nil
	case <-timer.C:
		return nil, nil, failed(schema.FailDeadline, true)
	case <-ctx.Done():
		return nil, nil, failed(schema.FailCancelled, true)
	}
}

// answered hands a response to whoever waits for it.
func (c *conn) answered(m *message) {
	var id uint64
	err := json.Unmarshal(m.ID, &id)
	c.mu.Lock()
	ch := c.pending[id]
	delete(c.pending, id) // a second answer finds nobody
	c.mu.Unlock()
	if err != nil || ch == nil {
		c.g.count.add(func(m *Metrics) { m.LateResults++ })
		return
	}
	ch <- callback{result: m.Result, err: m.Error}
}

// lose ends the waiting for answers, as none can come any more, and the
// subscriptions.
func (c *conn) lose() {
	c.mu.Lock()
	c.lost = true
	for id, ch := range c.pending {
		ch <- callback{lost: true} // has room: at most one is ever sent
		delete(c.pending, id)
	}
	for _, s := range c.subs {
		s.cancel()
	}
	c.mu.Unlock()
}
