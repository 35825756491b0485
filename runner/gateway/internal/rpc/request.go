package rpc

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// What a request in flight costs, in bytes: its message, the parameters that are
// decoded from it and the request that they are sent on with, and what keeps
// account. The goroutine of one that runs is bounded by Limits.InFlight.
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
	reader  *reader // the goroutine that serves it; nil when that one reads nothing

	job       func(ctx context.Context) (any, *jsonrpc.Error)
	cancel    context.CancelFunc // once it runs
	cancelled bool
}

// Answer answers a request. It is called exactly once.
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

// Wait lets the connection's next message be read: what follows may take long.
// Only the goroutine that serves the request calls it.
func (r *Request) Wait() {
	if r.reader != nil && r.reader.reads {
		r.reader.reads = false
		r.conn.readOn()
	}
}

// Go serves the request with job, which may wait, and answers with what it
// returns. The job runs right here if it may, else when its turn comes. False:
// the client has too much in flight; nothing was answered, and the caller may
// answer with [Request.Busy].
func (r *Request) Go(job func(ctx context.Context) (any, *jsonrpc.Error)) bool {
	r.job = job
	admitted, now := r.conn.admit(r)
	if now {
		r.conn.run(r)
	}
	return admitted
}

// Busy answers that there is too much in flight.
func (r *Request) Busy() { r.Answer(nil, r.conn.server.noRoom()) }

// Context ends when the server closes.
func (r *Request) Context() context.Context { return r.conn.ctx }

func (s *Server) noRoom() *jsonrpc.Error {
	return jsonrpc.Errorf(CodeBusy, "too many requests in flight: at most %d bytes per connection and %d in all; try again", s.limits.InFlightBytes, s.limits.HeldBytes)
}

func (r *Request) cost() int { return requestCopies*r.size + requestOverhead }

// admit takes a request on, to run now or to wait for its turn, unless there is
// too much already.
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

// isInFlight reports whether a request with an id has no answer yet.
func (c *Conn) isInFlight(id jsontext.Value) bool {
	if id == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inflight[jsonrpc.IDKey(id)] != nil
}

// run runs a request's job and then, unless this goroutine has to read on, those
// that waited for their turn.
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
		c.free(r) // a client that has its answer finds room again
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

// finished gives the place of a request that has ended to the next in line.
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

// free gives back what a request holds.
func (c *Conn) free(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= r.cost()
	c.server.release(r.cost())
	if id := jsonrpc.IDKey(r.id); c.inflight[id] == r {
		delete(c.inflight, id)
	}
}

// cancelRequest handles $/cancelRequest {id}: the request in flight with that id
// ends as cancelled, and is still answered.
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
