package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Config configures a server.
type Config struct {
	// Open makes the session of a new client.
	Open func(*Conn) Session
	// Authenticate returns the identity of a WebSocket client with a bearer token. If it is nil, every client is
	// accepted, but only requests for a loopback host are served.
	Authenticate func(token string) (identity string, ok bool)
	// DropStopped disconnects a client of a unix socket whose process has been stopped for Limits.PingEvery.
	DropStopped bool
	Limits      Limits
}

// Session serves one client.
type Session interface {
	// Serve handles a request, or a notification, which needs no answer. It answers with [Request.Answer] or
	// [Request.Go], now or later. The next message is read when it returns or waits.
	Serve(*Request)
	// Close is called once the client has ended.
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
	held          atomic.Int64 // of running and waiting requests, and of partly read messages
	running       atomic.Int64 // running requests

	mu        sync.Mutex
	listeners []*listener
	conns     map[*Conn]bool
	slots     int           // connections, including those being set up
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

// Stats are a server's counters.
type Stats struct {
	// Refused counts messages that were answered with an error or ended their connection.
	Refused uint64
	// LateResults counts answers that came after the end of their call, or for no call.
	LateResults   uint64
	Connections   int
	InFlightBytes int64 // held by running and waiting requests
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.refused.Load(), s.late.Load(), len(s.conns), s.held.Load()}
}

// Close ends the server. It handles what disconnected clients have sent, gives connected clients a moment to finish,
// cancels and answers the requests in flight, and ends the connections. When ctx ends, it drops what clients have not
// sent yet. When it returns, nothing of any client is left.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	for _, l := range listeners {
		l.stop() // waiting connections are being served now
	}
	s.drain(ctx)

	s.mu.Lock()
	s.closed = true
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.cancel() // requests end as cancelled, and are answered
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

// waits waits for a group, and reports whether it was done before ctx ended.
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

// drain waits until no connection is left, ctx ends, or Limits.DrainTimeout has passed.
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

// enter takes a place for a connection, and reports whether one was free. leave returns it.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots >= s.limits.Connections {
		return false
	}
	s.slots++
	return true
}

// enterLate takes a place even if none is free.
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

// ServeConn serves one client over a stream until its end, regardless of the limit on connections. It returns when
// nothing of the client is left.
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

// reserve takes n of the bytes that all connections may hold together, and reports whether they were free.
func (s *Server) reserve(n int) bool {
	if s.held.Add(int64(n)) > int64(s.limits.HeldBytes) {
		s.held.Add(-int64(n))
		return false
	}
	return true
}

func (s *Server) release(n int) { s.held.Add(-int64(n)) }

// serve serves a connection until its end. It returns when nothing of it is left.
func (s *Server) serve(w wire, identity string) {
	c := &Conn{
		server: s, identity: identity, wire: w, out: newOutbox(w, s.limits.Outbox), ctx: s.ctx,
		over: make(chan string, 1), takeOver: make(chan struct{}),
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

func (s *Server) noRoom() *jsonrpc.Error {
	return jsonrpc.Errorf(CodeBusy,
		"too many requests in flight: at most %d bytes per connection and %d in all; try again", s.limits.InFlightBytes,
		s.limits.HeldBytes)
}

// Listen serves clients at an address until Close. It returns what a client needs: the path of a "unix" socket, or
// the URL of a "ws" one. With an empty unix address it makes a socket in a new 0700 directory, which Close removes. A
// path must not exist, except as a socket that nobody serves. A ws address is host:port; it needs a token unless the
// host is a loopback address.
func (s *Server) Listen(network, address string) (string, error) {
	l := &listener{server: s, refusing: make(chan struct{}, refuseAtOnce)}
	var err error
	switch network {
	case "unix":
		err = l.listenUnix(address)
	case "ws":
		err = l.listenWS(address)
	default:
		err = fmt.Errorf("listen on %s %q: unknown network; use unix or ws", network, address)
	}
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	closed := s.closed
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	if closed {
		l.stop()
		l.remove()
		return "", net.ErrClosed
	}
	l.done.Go(l.accept)
	return l.at, nil
}

// httpServer upgrades requests to WebSockets.
func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(s.upgrade),
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // stderr belongs to the child
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
}

func (s *Server) upgrade(rw http.ResponseWriter, r *http.Request) {
	identity, err := s.admit(r)
	if err != nil {
		rw.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(rw, err.Error(), http.StatusUnauthorized)
		return
	}
	if !s.enter() {
		http.Error(rw, fmt.Sprintf("more than %d connections", s.limits.Connections), http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	// Accept refuses a browser's request from another origin. readAll limits the size of a decompressed message, as
	// of any other.
	conn, err := websocket.Accept(rw, r,
		&websocket.AcceptOptions{CompressionMode: websocket.CompressionNoContextTakeover})
	if err != nil {
		return // Accept has answered
	}
	conn.SetReadLimit(-1) // readAll has a limit that leaves room for an answer
	w := &wsWire{conn: conn, tcp: r.Context().Value(connKey{}).(*timedConn), in: incoming{server: s}}
	stop := w.ping(s.limits.PingEvery)
	defer stop()
	s.serve(w, identity)
}

// admit identifies a client by its bearer token. Without tokens, only requests for a loopback host are served, so
// that no web page can reach the server under its own name (DNS rebinding).
func (s *Server) admit(r *http.Request) (identity string, err error) {
	if s.cfg.Authenticate == nil {
		if !IsLoopback(r.Host) {
			return "", fmt.Errorf("host %.100q: without a token, only loopback hosts are served", r.Host)
		}
		return "", nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = r.URL.Query().Get("token")
	}
	identity, ok := s.cfg.Authenticate(token)
	if !ok {
		return "", errors.New("the bearer token is missing or wrong: send ASSAY_RUN_TOKEN in the Authorization " +
			"header or as the token query parameter")
	}
	return identity, nil
}

func (s *Server) newLineWire(conn net.Conn) *lineWire {
	timed := &timedConn{Conn: conn, limits: &s.limits}
	return &lineWire{timed, bufio.NewReaderSize(timed, 32<<10), &s.limits, incoming{server: s}}
}
