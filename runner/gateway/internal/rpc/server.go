package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what a server does with its clients.
type Config struct {
	// Open makes the session of a new client.
	Open func(*Conn) Session
	// Authenticate tells who a WebSocket client with a bearer token is. Nil lets
	// any client in, and then only requests for a loopback host are served.
	Authenticate func(token string) (identity string, ok bool)
	// DropStopped lets a client of a unix socket go whose process has been stopped for
	// Limits.PingEvery.
	DropStopped bool
	Limits      Limits
}

// Session serves one client.
type Session interface {
	// Serve handles a request or, if nobody waits for an answer, a
	// notification. It answers it with [Request.Answer] or [Request.Go], now
	// or later. The next message is read when it returns or waits.
	Serve(*Request)
	// Close is called once nothing of the client is left.
	Close()
}

// Server serves clients until it is closed. All methods are safe for concurrent
// use.
type Server struct {
	cfg    Config
	limits Limits
	ctx    context.Context
	cancel context.CancelFunc

	refused, late atomic.Uint64
	held          atomic.Int64 // bytes of requests that run or wait, and of what is half read
	running       atomic.Int64 // requests that run

	mu        sync.Mutex
	listeners []*listener
	conns     map[*Conn]bool
	slots     int           // connections, those being set up included
	vacant    chan struct{} // closed when slots falls to 0
	closed    bool
	work      sync.WaitGroup // connections
}

// New makes a server that does not listen yet.
func New(cfg Config) *Server {
	cfg.Limits.setDefaults()
	s := &Server{cfg: cfg, limits: cfg.Limits, conns: map[*Conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Stats are a server's counts.
type Stats struct {
	// Refused is how many messages were answered with an error, or ended their
	// connection.
	Refused uint64
	// LateResults is how many answers came after their call had ended, or for
	// no call.
	LateResults   uint64
	Connections   int
	InFlightBytes int64 // what requests that run or wait hold
}

// Stats tells what has happened so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.refused.Load(), s.late.Load(), len(s.conns), s.held.Load()}
}

// Close ends the server. It takes what clients that are gone have sent, gives
// the others a moment to end by themselves, cancels the requests in flight,
// answers them, and ends the connections. When ctx ends, what clients still have
// to say is dropped. Nothing of any client is left when it returns.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	for _, l := range listeners {
		l.stop() // what had connected is being served now
	}
	s.drain(ctx)

	s.mu.Lock()
	s.closed = true
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.cancel() // requests end as cancelled, and their clients are told
	for _, c := range conns {
		go func() {
			c.idle(ctx)
			c.out.flush()
			c.wire.finish("the gateway is closing")
		}()
	}
	if !waits(ctx, &s.work) {
		for _, c := range conns {
			c.wire.close()
		}
		s.work.Wait()
	}
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.remove())
	}
	return errors.Join(errs...)
}

// waits waits for a group, and reports whether it came to its end before ctx did.
func waits(ctx context.Context, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// drain waits until no connection is left, ctx ends, or Limits.DrainTimeout is
// over.
func (s *Server) drain(ctx context.Context) {
	s.mu.Lock()
	if s.slots == 0 {
		s.mu.Unlock()
		return
	}
	vacant := make(chan struct{})
	s.vacant = vacant
	s.mu.Unlock()
	timer := time.NewTimer(s.limits.DrainTimeout)
	defer timer.Stop()
	select {
	case <-vacant:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// enter takes a place for a connection, if there is one; leave gives it back.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots >= s.limits.Connections {
		return false
	}
	s.slots++
	return true
}

// enterLate takes a place also when there is none.
func (s *Server) enterLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots++
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots--; s.slots == 0 && s.vacant != nil {
		close(s.vacant)
		s.vacant = nil
	}
}

// ServeConn serves one client over a stream until its end, whatever the limit of
// connections says. It returns when nothing of the client is left.
func (s *Server) ServeConn(conn net.Conn) {
	s.enterLate()
	defer s.leave()
	s.serve(s.newLineWire(conn), "")
}

func (s *Server) add(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	s.conns[c] = true
	return true
}

func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.work.Done()
}

// reserve takes bytes from what all connections may hold.
func (s *Server) reserve(n int) bool {
	if s.held.Add(int64(n)) > int64(s.limits.HeldBytes) {
		s.held.Add(-int64(n))
		return false
	}
	return true
}

func (s *Server) release(n int) { s.held.Add(-int64(n)) }
