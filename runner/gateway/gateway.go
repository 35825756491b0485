package gateway

import (
	"context"
	"errors"
	"io"
	"log"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Gateway serves clients until it is closed. All methods are safe for
// concurrent use.
type Gateway struct {
	cfg    Config
	limits Limits
	ctx    context.Context
	cancel context.CancelFunc
	count  *counters
	events atomic.Uint64 // lines offered to sinks
	held   atomic.Int64  // bytes of requests that run or wait
	run    *recording    // the run's own; nil in serve

	opening sync.Mutex // one runs.start at a time in serve

	mu        sync.Mutex
	listeners []*listener
	conns     map[*conn]bool
	slots     int           // connections, those being set up included
	vacant    chan struct{} // closed when slots falls to 0
	runs      []*recording
	byID      map[string]*recording
	byKey     map[string]*recording
	ended     int
	closed    bool
	work      sync.WaitGroup // connections and what ends recordings

	closing sync.Once
	result  error
}

// New makes a gateway that does not listen yet. With Config.Run, the policy
// is put on record at once.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Limits.setDefaults()
	cfg.Turns = cfg.Turns.Effective()
	g := &Gateway{
		cfg: cfg, limits: cfg.Limits, count: newCounters(),
		conns: map[*conn]bool{}, byID: map[string]*recording{}, byKey: map[string]*recording{},
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if cfg.Run != nil {
		g.run = newRecording(*cfg.Run, 0, newScope(cfg.Policy), &g.cfg)
		g.runs, g.byID[cfg.Run.RunID] = []*recording{g.run}, g.run
		if err := g.run.putPolicy(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// enter takes a place for a connection, if there is one; leave gives it back.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slots >= g.limits.Connections {
		return false
	}
	g.slots++
	return true
}

func (g *Gateway) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slots--; g.slots == 0 && g.vacant != nil {
		close(g.vacant)
		g.vacant = nil
	}
}

// hold makes Close wait for the caller, who calls g.work.Done.
func (g *Gateway) hold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.work.Add(1)
	return true
}

func (g *Gateway) add(c *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.work.Add(1)
	g.conns[c] = true
	g.count.add(func(m *Metrics) { m.Connections++ })
	return true
}

func (g *Gateway) remove(c *conn) {
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
	g.count.add(func(m *Metrics) { m.Connections-- })
	g.work.Done()
}

func (g *Gateway) recording(id string) *recording {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byID[id]
}

func (g *Gateway) recordings() []*recording {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.runs)
}

// Close ends the gateway. It takes what clients that are gone have sent, gives
// the others a moment to end by themselves, cancels the calls in flight, ends
// open recordings as incomplete, drains the sinks, and removes the socket
// directory. When ctx ends, what clients still have to say is dropped. The
// error tells of evidence that could not be recorded; what is missing in a sink
// alone is told to Config.Warn. A second Close waits for the first and returns
// the same.
func (g *Gateway) Close(ctx context.Context) error {
	g.closing.Do(func() { g.result = g.close(ctx) })
	return g.result
}

func (g *Gateway) close(ctx context.Context) error {
	g.mu.Lock()
	listeners := g.listeners
	g.mu.Unlock()
	for _, l := range listeners {
		l.stop() // what had connected is being served now
	}
	g.wait(ctx, g.limits.DrainTimeout)

	g.mu.Lock()
	g.closed = true
	conns := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	g.cancel() // calls end as cancelled, and their clients are told
	for _, c := range conns {
		go func() {
			c.idle(ctx)
			c.out.flush()
			c.wire.finish("the gateway is closing")
		}()
	}
	done := make(chan struct{})
	go func() { g.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		for _, c := range conns {
			c.wire.close()
		}
		<-done
	}

	var errs []error
	for _, r := range g.recordings() {
		r.mu.Lock()
		open := r.state == stateOpen
		r.mu.Unlock()
		if open {
			if err := g.end(context.Background(), r, ""); err != nil {
				errs = append(errs, err)
			}
		} else if r == g.run && r.started() {
			// Calls after runs.complete are not turns, but they count.
			r.putSession()
		}
		if err := r.failure(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, s := range g.cfg.Sinks {
		if err := s.Close(ctx); err != nil {
			g.warn(err.Error()) // the bundle has them all
		}
	}
	for _, l := range listeners {
		errs = append(errs, l.remove())
	}
	return errors.Join(errs...)
}

// wait waits until no connection is left, ctx ends, or the time is over.
func (g *Gateway) wait(ctx context.Context, most time.Duration) {
	g.mu.Lock()
	if g.slots == 0 {
		g.mu.Unlock()
		return
	}
	vacant := make(chan struct{})
	g.vacant = vacant
	g.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-vacant:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// idle waits until nothing is in flight on a connection, or ctx ends. Nothing
// new gets in.
func (c *conn) idle(ctx context.Context) {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// started tells whether a client ever opened the recording.
func (r *recording) started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state != stateReady
}

// discardLog keeps net/http from writing to stderr, which is the child's.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
