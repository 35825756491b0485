package mcp

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Bounds of a front: how many clients at once, and how long a client may be silent.
const (
	maxSessions = 64
	idleTimeout = 30 * time.Minute
	readTimeout = 30 * time.Second // of a message
)

// Front serves MCP's Streamable HTTP to clients. Each client's session has a server and
// a proxy of its own.
type Front struct {
	// Token is what clients must send, as a bearer token or as the query parameter
	// "token". Empty requires none.
	Token string
	// Loopback says that the address is a loopback address. Requests for other host
	// names are then refused, since a web page could send them under a name of its
	// own (DNS rebinding).
	Loopback bool
	// Servers has the server behind each path.
	Servers map[string]Backend

	mu       sync.Mutex
	sessions map[string]*session
	closed   bool
	work     sync.WaitGroup
}

// Backend is a server that clients of a front can use.
type Backend struct {
	Proxy Config // of each session; all sessions share Rules
	// Start starts the server of one session. forward returns the client's headers
	// that are sent on to a remote server.
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
	case id != "" && (s == nil || s.path != r.URL.Path):
		http.Error(w, "the session has ended: initialize again", http.StatusNotFound)
		return
	case s != nil:
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

var errToken = errors.New("the bearer token is missing or wrong: send ASSAY_MCP_TOKEN in the Authorization header or as the token query parameter")

// admit refuses requests that none of our clients sends. own says that the
// Authorization header was for the front and is not sent on.
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

// post accepts a client's messages. The first message of a session starts it.
func (f *Front) post(w http.ResponseWriter, r *http.Request, s *session, b Backend, auth http.Header) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxLine))
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		http.Error(w, fmt.Sprintf("the message cannot be read: it must have at most %d bytes and arrive within %v", MaxLine, readTimeout), http.StatusBadRequest)
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
		respondJSON(w, http.StatusBadRequest, errorResponse(nil, jsonrpc.CodeInvalidRequest, "assay-run: a batch must not be empty", nil))
		return
	}
	begins := false
	for _, m := range list {
		begins = begins || m.err == nil && m.Method == "initialize" && m.ID != nil
		if m.err == nil && m.Method == "notifications/cancelled" && s != nil {
			s.cancelled(m.Message)
		}
	}
	fresh := s == nil
	if fresh {
		if !begins {
			respondJSON(w, http.StatusBadRequest, errorResponse(nil, jsonrpc.CodeInvalidRequest, "assay-run: the "+headerSession+" header is missing: initialize first", nil))
			return
		}
		if s, err = f.start(r.URL.Path, b, auth); err != nil {
			respondJSON(w, http.StatusServiceUnavailable, errorResponse(nil, jsonrpc.CodeInternal, "assay-run: "+err.Error(), nil))
			return
		}
	}
	s.post(w, r, line, list, batch, fresh)
}

// asks returns the requests among a client's messages, by the keys of their ids, and the
// tokens of the requests that ask for progress. A message that cannot be read counts as a
// request: the proxy answers it with what is wrong.
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

// start starts a session.
func (f *Front) start(path string, b Backend, auth http.Header) (*session, error) {
	s := newSession(rand.Text(), path)
	s.proxy = New(b.Proxy)
	s.touch(auth)
	f.mu.Lock()
	switch {
	case f.closed:
		f.mu.Unlock()
		return nil, errors.New("the gateway is closing")
	case len(f.sessions) >= maxSessions:
		f.mu.Unlock()
		return nil, fmt.Errorf("%d sessions are open, which is the limit; try again", maxSessions)
	}
	if f.sessions == nil {
		f.sessions = map[string]*session{}
	}
	f.sessions[s.id] = s
	f.work.Add(1)
	f.mu.Unlock()
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
	f.mu.Unlock()
	f.work.Wait()
}
