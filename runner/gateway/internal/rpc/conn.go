package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

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
	work     sync.WaitGroup // requests in flight and what runs beside them
	over     chan string    // gets why the client ended, when nothing more can be read

	unread   []message // of a batch; for the goroutine that reads
	takeOver chan struct{}
	ready    atomic.Bool // a goroutine waits for takeOver

	mu       sync.Mutex
	pending  map[uint64]*pending // our requests
	lastID   uint64
	gone     bool                // no answer can come any more
	draining bool                // nothing new is taken on
	inflight map[string]*Request // by id
	queue    []*Request          // that wait for their turn
	running  int                 // requests that run
	bytes    int                 // of the requests queued and running
}

// serve runs a connection until its end. It returns when nothing of it is left.
func (s *Server) serve(w wire, identity string) {
	c := &Conn{
		server: s, identity: identity, wire: w, out: newOutbox(w, s.limits.Outbox), ctx: s.ctx, over: make(chan string, 1), takeOver: make(chan struct{}),
		pending: map[uint64]*pending{}, inflight: map[string]*Request{},
	}
	c.lost, c.lose = context.WithCancel(s.ctx)
	defer c.lose()
	if !s.add(c) {
		w.finish("the gateway is closing")
		return
	}
	defer s.remove(c)
	c.session = s.cfg.Open(c)
	defer c.session.Close()

	c.read()
	reason := <-c.over
	c.work.Wait()
	c.out.flush()
	w.finish(reason)
}

// reader is a goroutine that reads a connection's messages.
type reader struct {
	reads bool // still: no other goroutine reads on
}

// read handles messages until there are no more, or another goroutine reads on
// and this one is not needed to take over again.
func (c *Conn) read() {
	self := &reader{reads: true}
	for self.reads || c.stayReady(self) {
		m, err := c.next()
		if err != nil {
			reason := c.why(err)
			c.end() // what waits here for an answer waits no longer
			c.over <- reason
			return
		}
		c.handle(m, self)
	}
}

// readOn lets another goroutine read on.
func (c *Conn) readOn() {
	select {
	case c.takeOver <- struct{}{}:
	default:
		go c.read()
	}
}

// stayReady keeps one goroutine ready to read on: its stack has grown already,
// and to grow another's for each call would cost a tenth of the call. It tells
// whether the goroutine reads again.
func (c *Conn) stayReady(self *reader) bool {
	if !c.ready.CompareAndSwap(false, true) {
		return false // another one is
	}
	defer c.ready.Store(false)
	select {
	case <-c.takeOver:
		self.reads = true
	case <-c.lost.Done():
	}
	return self.reads
}

// next is the next message, of a batch or from the wire.
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

// why answers a message that cannot be read, and tells why the connection ends
// when that is the client's fault.
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

// send writes a message. A client that is gone gets nothing.
func (c *Conn) send(msg []byte) { c.out.send(msg) }

// Notify sends a notification and tells whether the client is still there.
func (c *Conn) Notify(method string, params any) bool {
	msg, err := jsonrpc.AppendRequest(nil, nil, method, params)
	return err == nil && c.out.send(msg) == nil
}

// Identity is who [Config.Authenticate] said the client is; "" over a unix socket.
func (c *Conn) Identity() string { return c.identity }

// Socket is the unix socket below, which tells who the client is, or nil.
func (c *Conn) Socket() *net.UnixConn { return c.wire.socket() }

// Beside runs f beside the client's requests, with a context that ends with the
// connection. False: nothing new is taken on.
func (c *Conn) Beside(f func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return false
	}
	c.work.Go(func() { f(c.lost) })
	return true
}

// idle waits until nothing is in flight, or ctx ends. Nothing new gets in.
func (c *Conn) idle(ctx context.Context) {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	waits(ctx, &c.work)
}

// end ends the waiting for answers, as none can come any more.
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

// message is one message that came, alone or in a batch.
type message struct {
	raw     jsontext.Value
	respond func([]byte) // takes the response to it, or nil
}

// handle handles one message.
func (c *Conn) handle(m message, by *reader) {
	f, failure := decode(m.raw, c.server.limits.Depth)
	if failure != nil {
		c.server.refused.Add(1)
		id, response := jsonrpc.IDOf(m.raw)
		if response {
			c.spoiled(id, failure)
			id = nil // it is one of ours
		}
		m.respond(jsonrpc.AppendError(nil, id, failure))
		return
	}
	if !f.IsRequest() {
		c.answered(f)
		m.respond(nil)
		return
	}
	r := &Request{Method: f.Method, Params: f.Params, conn: c, id: f.ID, size: len(m.raw), respond: m.respond, reader: by}
	switch {
	case c.ctx.Err() != nil:
		r.Answer(nil, jsonrpc.Errorf(CodeClosing, "the gateway is closing"))
	case c.isInFlight(r.id):
		// The answer that is still to come must be the only one with the id.
		r.Answer(nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "another request with this id is in flight"))
	case r.Method == "$/cancelRequest":
		r.Answer(c.cancelRequest(r))
	default:
		c.session.Serve(r)
	}
}
