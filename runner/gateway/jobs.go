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
	request *request
	// begin does it, and tells whether it is done. One that waits for an
	// answer instead goes on elsewhere, and calls conn.resumed in the end.
	begin func(ctx context.Context) (done bool)
	// slow is one whose begin may take long: it gets a goroutine.
	slow      bool
	cancel    context.CancelFunc // once it has begun
	cancelled bool
	freed     bool
}

func (j *job) size() int { return jobCopies*j.request.size + jobOverhead }

// async begins a job, now or later, unless there is too much already. It tells
// whether it does.
func (c *conn) async(j *job) bool {
	admitted, now := c.admit(j)
	if now {
		c.drive(j)
	}
	return admitted
}

func (c *conn) admit(j *job) (admitted, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining || c.bytes+j.size() > c.g.limits.InFlightBytes || !c.g.reserve(j.size()) {
		return false, false
	}
	c.bytes += j.size()
	if id := j.request.id; id != nil {
		c.inflight[string(id)] = j // a repeated id means the newest
	}
	c.work.Add(1)
	if c.running >= c.g.limits.InFlight {
		c.queue = append(c.queue, j)
		return true, false
	}
	c.running++
	return true, true
}

// drive begins a job, and when it is done at once the next that waits.
func (c *conn) drive(j *job) {
	for j != nil {
		if j.slow {
			go func() {
				c.start(j)
				c.drive(c.finished(j))
			}()
			return
		}
		if !c.start(j) {
			return
		}
		j = c.finished(j)
	}
}

func (c *conn) start(j *job) (done bool) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	j.cancel = cancel
	if j.cancelled {
		cancel()
	}
	c.mu.Unlock()
	return j.begin(ctx)
}

// resumed is told of the end of a job that had to wait.
func (c *conn) resumed(j *job) { c.drive(c.finished(j)) }

// finished forgets a job and gives the connection's next one.
func (c *conn) finished(j *job) (next *job) {
	defer c.work.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	j.cancel()
	c.freeLocked(j)
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

// free gives back what a job holds, so that a client which has its answer finds
// room again.
func (c *conn) free(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freeLocked(j)
}

func (c *conn) freeLocked(j *job) {
	if j.freed {
		return
	}
	j.freed = true
	c.bytes -= j.size()
	c.g.release(j.size())
	if id := string(j.request.id); c.inflight[id] == j {
		delete(c.inflight, id)
	}
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
