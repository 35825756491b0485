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
	if c.workers-c.parked >= c.g.limits.InFlight {
		c.work.Add(1)
		c.queue = append(c.queue, j)
		return true
	}
	c.work.Add(1)
	if c.parked > 0 {
		c.parked--
		c.handoff <- j
		return true
	}
	c.workers++
	go c.worker(j)
	return true
}

// maxParked is how many workers of a connection wait for more to do: a fresh
// goroutine has to grow its stack first, which takes longer than a call.
const maxParked = 4

// worker runs a job, then those that wait, and then those to come.
func (c *conn) worker(j *job) {
	for {
		ctx, cancel := context.WithCancel(c.ctx)
		c.mu.Lock()
		j.cancel = cancel
		if j.cancelled {
			cancel()
		}
		c.mu.Unlock()
		j.run(ctx)
		cancel()
		next, park := c.finished(j)
		c.work.Done()
		if j = next; park {
			select {
			case j = <-c.handoff:
			case <-c.over:
			}
		}
		if j == nil {
			return
		}
	}
}

// finished forgets a job and gives its worker the next one. Without one, the
// worker parks or ends.
func (c *conn) finished(j *job) (next *job, park bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= j.size()
	c.g.release(j.size())
	if id := string(j.request.id); c.inflight[id] == j {
		delete(c.inflight, id)
	}
	if len(c.queue) > 0 {
		next = c.queue[0]
		c.queue[0] = nil
		if c.queue = c.queue[1:]; len(c.queue) == 0 {
			c.queue = nil
		}
		return next, false
	}
	if c.parked < maxParked {
		c.parked++
		return nil, true
	}
	c.workers--
	return nil, false
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
