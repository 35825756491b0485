package gateway

import "context"

// What a request costs, in bytes: its message, the parameters that are decoded
// from it and the request that they are sent on with, and what keeps account.
const (
	jobCopies   = 3
	jobOverhead = 256
)

// job is a request that takes its time. Up to Limits.InFlight of a connection
// run at once, the others wait in order. What runs and waits is bounded in
// bytes, of a connection and of all of them.
type job struct {
	request   *request
	run       func(ctx context.Context)
	cancel    context.CancelFunc // while it runs
	cancelled bool
}

func (j *job) size() int { return jobCopies*j.request.size + jobOverhead }

// async runs f in another goroutine, now or later, unless there is too much
// already. It tells whether it does.
func (c *conn) async(r *request, f func(ctx context.Context)) bool {
	j := &job{request: r, run: f}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining || c.bytes+j.size() > c.g.limits.InFlightBytes || !c.g.reserve(j.size()) {
		return false
	}
	c.bytes += j.size()
	if r.id != nil {
		c.inflight[string(r.id)] = j // a repeated id means the newest
	}
	c.work.Add(1)
	if c.running >= c.g.limits.InFlight {
		c.queue = append(c.queue, j)
		return true
	}
	c.running++
	select {
	case c.g.handoff <- j:
	default: // nobody is parked
		go c.g.worker(j)
	}
	return true
}

// maxParked is how many workers wait for more to do: a fresh goroutine has to
// grow its stack first, which takes longer than a call.
const maxParked = 64

// worker runs a job, then those of its connection that wait, and then those to
// come.
func (g *Gateway) worker(j *job) {
	for j != nil {
		c := j.request.conn
		ctx, cancel := context.WithCancel(c.ctx)
		c.mu.Lock()
		j.cancel = cancel
		if j.cancelled {
			cancel()
		}
		c.mu.Unlock()
		j.run(ctx)
		cancel()
		next := c.finished(j)
		c.work.Done()
		if next == nil {
			next = g.park()
		}
		j = next
	}
}

// park waits for a job of any connection. There is none when enough wait
// already, or the gateway ends.
func (g *Gateway) park() *job {
	defer g.parked.Add(-1)
	if g.parked.Add(1) > maxParked {
		return nil
	}
	select {
	case j := <-g.handoff:
		return j
	case <-g.ctx.Done():
		return nil
	}
}

// finished forgets a job and gives its connection's next one.
func (c *conn) finished(j *job) (next *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= j.size()
	c.g.release(j.size())
	if id := string(j.request.id); c.inflight[id] == j {
		delete(c.inflight, id)
	}
	if len(c.queue) == 0 {
		c.running--
		return nil
	}
	next = c.queue[0]
	c.queue[0] = nil
	if c.queue = c.queue[1:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return next
}

// cancelJob cancels the request with an id, and tells whether there is one.
func (c *conn) cancelJob(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.inflight[id]
	if j == nil {
		return false
	}
	j.cancelled = true
	if j.cancel != nil {
		j.cancel()
	}
	return true
}

// reserve takes bytes from what all connections may hold.
func (g *Gateway) reserve(n int) bool {
	if g.held.Add(int64(n)) > int64(g.limits.HeldBytes) {
		g.held.Add(-int64(n))
		return false
	}
	return true
}

func (g *Gateway) release(n int) { g.held.Add(-int64(n)) }
