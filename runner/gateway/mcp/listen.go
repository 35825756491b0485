package mcp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Limits of a front: clients at the same time, and how long a client may be silent.
const (
	maxSessions = 64
	idleTimeout = 30 * time.Minute
	// expiredTimeout is how long a session that the server has ended is kept for answers that are not read yet.
	expiredTimeout = 30 * time.Second
	readTimeout    = 30 * time.Second // of a message
)

// waits are how long a front waits for clients that may be gone. A client is gone once it has closed all its
// connections.
type waits struct {
	gone  time.Duration // until a session whose client is gone ends
	least time.Duration // the same, if a new client needs its place
	place time.Duration // how long a new client waits for a place
}

var usualWaits = waits{gone: time.Minute, least: 5 * time.Second, place: 20 * time.Second}

// endAtOnce limits the sessions that end for one client that needs a place. A server takes seconds to end, and the
// next clients need places too.
const endAtOnce = 8

// retryAfter is when a client without a place should try again.
const retryAfter = 30 * time.Second

// Front serves MCP's Streamable HTTP to clients. Each client's session has its own server and proxy.
type Front struct {
	// Token is the token that clients must send, as a bearer token or as the query parameter "token". Empty requires
	// none.
	Token string
	// Loopback means that the address is a loopback address. Requests for other host names are then refused, since a
	// web page could send them under its own name (DNS rebinding).
	Loopback bool
	// Servers maps URL paths to servers.
	Servers map[string]Backend

	waits waits // usualWaits if zero

	mu       sync.Mutex
	sessions map[string]*session
	changed  chan struct{} // closed, and replaced, when a session ends or is gone
	closed   bool
	work     sync.WaitGroup
}

// connKey is the context key of a request's connection.
type connKey struct{}

// HTTPServer returns a server that tells the front when a client is gone. With any other server, the front only
// notices silent clients.
func (f *Front) HTTPServer() *http.Server {
	return &http.Server{
		Handler: f, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				f.lost(conn)
			}
		},
	}
}

// lost removes a closed connection from the sessions that used it.
func (f *Front) lost(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sessions {
		if !s.conns[conn] {
			continue
		}
		if delete(s.conns, conn); len(s.conns) == 0 {
			s.goneSince = time.Now()
			s.gone = time.AfterFunc(f.times().gone, s.end)
			f.wake()
		}
	}
}

// uses records that a session's client uses the connection of a request.
func (f *Front) uses(s *session, r *http.Request) {
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.conns[conn] = true
	if s.gone != nil {
		s.gone.Stop()
		s.gone = nil
	}
}

func (f *Front) times() waits {
	if f.waits == (waits{}) {
		return usualWaits
	}
	return f.waits
}

// wake makes clients that wait for a place check again. f.mu is held.
func (f *Front) wake() {
	if f.changed != nil {
		close(f.changed)
	}
	f.changed = make(chan struct{})
}

// goneSessions lists the sessions whose clients are gone, the longest first. f.mu is held.
func (f *Front) goneSessions() []*session {
	var gone []*session
	for _, s := range f.sessions {
		if s.gone != nil && !s.ended() {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(a, b *session) int { return a.goneSince.Compare(b.goneSince) })
	return gone
}

// errFull means that the front has no place for another client.
var errFull = fmt.Errorf("%d clients have a session, which is the limit; try again in %v", maxSessions, retryAfter)

// enter gives a session its place. If there is none, it waits until a session ends, or its client has been gone for a
// while.
func (f *Front) enter(ctx context.Context, s *session) error {
	late := time.NewTimer(f.times().place)
	defer late.Stop()
	asked := false // whether a session of a gone client was asked for its place
	for {
		f.mu.Lock()
		switch {
		case f.closed:
			f.mu.Unlock()
			return errors.New("the gateway is closing")
		case len(f.sessions) < maxSessions:
			if f.sessions == nil {
				f.sessions = map[string]*session{}
			}
			f.sessions[s.id] = s
			f.work.Add(1)
			f.mu.Unlock()
			return nil
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed, soon := f.changed, (<-chan time.Time)(nil)
		if gone := f.goneSessions(); len(gone) > 0 && !asked {
			if left := f.times().least - time.Since(gone[0].goneSince); left > 0 {
				soon = time.After(left)
			} else {
				asked = true
				for _, s := range gone[:min(len(gone), endAtOnce)] {
					if time.Since(s.goneSince) >= f.times().least {
						s.end()
					}
				}
			}
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-soon:
		case <-late.C:
			return errFull
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Backend is a server for the clients of a front.
type Backend struct {
	Proxy Config // of each session; all sessions share Rules
	// Start starts the server of one session. forward returns the client's headers to send on to a remote server.
	Start func(forward func() http.Header) (*Server, error)
}

// ServeHTTP serves one request of a client.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	own, err := f.admit(r)
	if err != nil {
		code := http.StatusForbidden
		if errors.Is(err, errToken) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			code = http.StatusUnauthorized
		}
		http.Error(w, err.Error(), code)
		return
	}
	backend, there := f.Servers[r.URL.Path]
	if !there {
		http.NotFound(w, r)
		return
	}
	var auth http.Header
	if a := r.Header.Values("Authorization"); len(a) > 0 && !own {
		auth = http.Header{"Authorization": a}
	}
	id := r.Header.Get(headerSession)
	s := f.session(id)
	switch {
	case id != "" && (s == nil || s.path != r.URL.Path || r.Method == http.MethodPost && s.expired.Load()):
		http.Error(w, "the session has ended: initialize again", http.StatusNotFound)
		return
	case s != nil:
		f.uses(s, r)
		s.touch(auth)
	}
	switch r.Method {
	case http.MethodPost:
		f.post(w, r, s, backend, auth)
	case http.MethodGet:
		if s == nil {
			http.Error(w, "the "+headerSession+" header is missing", http.StatusBadRequest)
			return
		}
		s.get(w, r)
	case http.MethodDelete:
		if s != nil {
			s.end()
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "use POST, GET or DELETE", http.StatusMethodNotAllowed)
	}
}

var errToken = errors.New("the bearer token is missing or wrong: send ASSAY_MCP_TOKEN in the Authorization header " +
	"or as the token query parameter")

// admit refuses requests that no real client sends. own means that the Authorization header was for the front and is
// not sent on.
func (f *Front) admit(r *http.Request) (own bool, err error) {
	if f.Loopback && !rpc.IsLoopback(r.Host) {
		return false, fmt.Errorf("host %.100q: only loopback hosts are served", r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) && !(f.Loopback && rpc.IsLoopback(u.Host)) {
			return false, fmt.Errorf("origin %.100q is not allowed", origin)
		}
	}
	if f.Token == "" {
		return false, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && f.is(token) {
		return true, nil
	}
	if f.is(r.URL.Query().Get("token")) {
		return false, nil
	}
	return false, errToken
}

func (f *Front) is(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(f.Token)) == 1
}

func (f *Front) session(id string) *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sessions[id]
}

// post accepts a client's messages. The first message starts a session.
func (f *Front) post(w http.ResponseWriter, r *http.Request, s *session, b Backend, auth http.Header) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		http.Error(w, fmt.Sprintf("the message cannot be read: it must have at most %d bytes and arrive within %v",
			maxLine, readTimeout), http.StatusBadRequest)
		return
	}
	line := oneLine(body)
	list, batch, err := read(line)
	if err != nil {
		toClient, _ := unreadable(line, err)
		respondJSON(w, http.StatusBadRequest, toClient)
		return
	}
	if batch && len(list) == 0 {
		respondJSON(w, http.StatusBadRequest,
			errorResponse(nil, jsonrpc.CodeInvalidRequest, "assay-run: a batch must not be empty", nil))
		return
	}
	begins, first := false, jsontext.Value(nil) // id of the request that starts a session
	for _, m := range list {
		if m.err == nil && m.Method == "initialize" && m.ID != nil {
			begins, first = true, m.ID
		}
		if m.err == nil && m.Method == "notifications/cancelled" && s != nil {
			s.cancelled(m.Message)
		}
	}
	fresh := s == nil
	if fresh {
		if !begins {
			respondJSON(w, http.StatusBadRequest,
				errorResponse(nil, jsonrpc.CodeInvalidRequest,
					"assay-run: the "+headerSession+" header is missing: initialize first", nil))
			return
		}
		if s, err = f.start(r, b, auth); err != nil {
			if errors.Is(err, errFull) {
				w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
			}
			failure := errorResponse(first, jsonrpc.CodeInternal, "assay-run: "+err.Error(), nil)
			respondJSON(w, http.StatusServiceUnavailable, failure)
			return
		}
	}
	s.post(w, r, line, list, batch, fresh)
}

// asks returns the keys of the requests' ids in a client's messages, and the tokens of requests that ask for
// progress. A message that cannot be read counts as a request: the proxy answers it with an error.
func asks(list []incoming) (requests, tokens []string) {
	for _, m := range list {
		if m.err != nil {
			if id, response := jsonrpc.IDOf(m.raw); id != nil && !response {
				requests = append(requests, jsonrpc.IDKey(id))
			}
			continue
		}
		if m.Method == "" || m.ID == nil {
			continue
		}
		requests = append(requests, jsonrpc.IDKey(m.ID))
		if token := progressToken(m.Message); token != "" {
			tokens = append(tokens, token)
		}
	}
	return requests, tokens
}

func respondJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

// start starts a session for a request.
func (f *Front) start(r *http.Request, b Backend, auth http.Header) (*session, error) {
	s := newSession(rand.Text(), r.URL.Path)
	s.proxy = New(b.Proxy)
	s.touch(auth)
	if err := f.enter(r.Context(), s); err != nil {
		s.end()
		return nil, err
	}
	f.uses(s, r)
	server, err := b.Start(s.forward)
	if err != nil {
		f.remove(s)
		return nil, err
	}
	if s.remote = server.Accepted != nil; s.remote {
		server.Accepted(s.accepted)
	}
	s.proxy.connect(s, server)
	go func() {
		defer f.remove(s)
		s.relay(server)
	}()
	return s, nil
}

func (f *Front) remove(s *session) {
	s.end()
	f.mu.Lock()
	delete(f.sessions, s.id)
	if s.gone != nil {
		s.gone.Stop()
	}
	f.wake()
	f.mu.Unlock()
	f.work.Done()
}

// Close ends all sessions and their servers.
func (f *Front) Close() {
	f.mu.Lock()
	f.closed = true
	for _, s := range f.sessions {
		s.end()
	}
	f.wake()
	f.mu.Unlock()
	f.work.Wait()
}
