package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
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
	pending  map[uint64]*callback // our requests
	lastID   uint64
	lost     bool            // no answer can come any more
	draining bool            // nothing new is taken on
	inflight map[string]*job // by request id
	queue    []*job          // waiting for a worker, in order
	running  int             // jobs that have begun
	bytes    int             // of the jobs queued and running
	subs     map[string]*subscription
	lastSub  uint64
}

// serve runs a connection until its end. It returns when nothing of it is left.
func (g *Gateway) serve(w wire) {
	c := &conn{
		g: g, wire: w, out: newOutbox(w, g.limits.Outbox),
		tools: map[string]*tool{}, pending: map[uint64]*callback{}, inflight: map[string]*job{},
		subs: map[string]*subscription{},
	}
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
		case errors.Is(err, errNoRoom):
			c.refuse(nil, c.g.noRoom())
			return err.Error()
		case errors.Is(err, errNotText):
			c.refuse(nil, errorf(codeInvalidRequest, "%v", err))
			return err.Error()
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		}
		return ""
	}
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
