package model

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/runner/model/wire"
	"github.com/assay-run/assay-run/schema"
)

// Config is what an Endpoint needs.
type Config struct {
	Routes []Route // at least one
	// Now is the time since run_started, in nanoseconds.
	Now func() int64
	// Record takes each exchange once it has ended. It must not block.
	Record *Recorder
	// Dir is where answers wait for the record that are too much for memory.
	Dir string
	// Drained reports whether the other end of a connection is closed and all that it sent was read. Nil:
	// that is not known.
	Drained func(syscall.Conn) bool
	// Budget bounds what is asked of the providers, by Prices where it has a limit of cost.
	Budget Budget
	Prices *Prices
	// Replay has the answers of an earlier run. Nil: the providers answer. With ReplayStrict, a request that differs
	// from the recorded one in anything has no answer.
	Replay       *tape.Cassette
	ReplayStrict bool
	// DenyProviderTools refuses requests that declare tools which the provider runs.
	DenyProviderTools bool
}

// Endpoint passes an agent's requests on to the providers. Its methods are safe for concurrent use.
type Endpoint struct {
	cfg     Config
	token   string
	address string
	server  *http.Server
	proxies map[string]*httputil.ReverseProxy
	purse   *purse
	memory  memory
	serving sync.WaitGroup
	conns   sync.WaitGroup
	closed  atomic.Bool
}

// maxRequest bounds the body of a request, in bytes. Providers accept less.
const maxRequest = 128 << 20

// Listen makes an endpoint that listens on a port of the loopback address.
func Listen(cfg Config) (*Endpoint, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("model gateway: %w", err)
	}
	if cfg.Replay != nil {
		cfg.Budget.Cost = 0 // which nothing has
	}
	e := &Endpoint{cfg: cfg, token: "assay-run-" + rand.Text(), address: l.Addr().String(),
		proxies: map[string]*httputil.ReverseProxy{}, purse: newPurse(cfg.Budget, cfg.Prices)}
	e.memory.left.Store(maxMemory)
	quiet := log.New(io.Discard, "", 0)
	e.server = &http.Server{Handler: http.HandlerFunc(e.serve), ErrorLog: quiet,
		ConnContext: withConnection, ConnState: e.changed}
	// Nothing is timed out: a model may think for as long as its provider lets it.
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64,
	}
	for i := range cfg.Routes {
		route := &cfg.Routes[i]
		e.proxies[route.Name] = &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { route.rewrite(r) },
			ModifyResponse: func(r *http.Response) error { return guard(r, route.Key) },
			ErrorHandler:   e.unreachable, ErrorLog: quiet, Transport: transport, FlushInterval: -1,
		}
	}
	e.Serve(l)
	return e, nil
}

// Serve also serves the connections of another listener, and owns it.
func (e *Endpoint) Serve(l net.Listener) {
	e.serving.Go(func() { _ = e.server.Serve(counting{l, e}) })
}

// changed follows the connections. A request that cannot be read never gets to serve, and has a line all the same.
func (e *Endpoint) changed(c net.Conn, state http.ConnState) {
	own := c.(*conn)
	if own.unread != nil {
		own.unread.end = e.cfg.Now()
		e.cfg.Record.add(own.unread)
		own.unread = nil
	}
	switch state {
	case http.StateNew:
		e.conns.Add(1)
		if e.closed.Load() { // Close may have missed it
			_ = own.Close()
		}
	case http.StateActive:
		own.unread = &exchange{connection: own.number, remote: c.RemoteAddr().String(), start: e.cfg.Now(),
			refused: schema.ModelRefusedRequest, response: &passage{memory: &e.memory}}
	case http.StateClosed:
		e.conns.Done()
	}
}

// Address is its host and port.
func (e *Endpoint) Address() string { return e.address }

// Token is what the agent's requests carry in the place of a key.
func (e *Endpoint) Token() string { return e.token }

// Spent is closed when a limit of the budget has kept a request from being sent. It is nil without a budget.
func (e *Endpoint) Spent() <-chan struct{} {
	if e.purse == nil {
		return nil
	}
	return e.purse.over
}

// LimitsHit are the limits of the budget that kept requests from being sent, as result.json has them.
func (e *Endpoint) LimitsHit() []string { return e.purse.limitsHit() }

// Close ends it, and waits until all that passed has been given to the recorder.
func (e *Endpoint) Close() error {
	e.closed.Store(true)
	err := e.server.Close()
	e.serving.Wait()
	e.conns.Wait()
	for _, p := range e.proxies {
		p.Transport.(*http.Transport).CloseIdleConnections()
	}
	return err
}

// Environ is env with what leads an agent here, and without the keys and what would lead it elsewhere. direct tells
// that programs must be told not to use a proxy for the way here.
func (e *Endpoint) Environ(env []string, direct bool) []string {
	var set, drop []string
	for i := range e.cfg.Routes {
		s, d := e.cfg.Routes[i].environment("http://"+e.address, e.token)
		set, drop = append(set, s...), append(drop, d...)
	}
	if direct {
		set = append(set, noProxy(env, "NO_PROXY"), noProxy(env, "no_proxy"))
	}
	ours := func(name string) bool {
		return slices.ContainsFunc(set, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	kept := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		return ours(name) || slices.Contains(drop, name) || slices.ContainsFunc(e.cfg.Routes, func(r Route) bool {
			return r.Key != "" && strings.TrimSpace(value) == r.Key
		})
	})
	return append(kept, set...)
}

// noProxy is a variable that names the hosts without a proxy, with ours.
func noProxy(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	if slices.Contains(strings.Split(value, ","), "127.0.0.1") {
		return name + "=" + value
	}
	return name + "=" + strings.TrimPrefix(value+",127.0.0.1", ",")
}

// route finds a route that this endpoint has.
func (e *Endpoint) route(name string) *Route {
	for i := range e.cfg.Routes {
		if e.cfg.Routes[i].Name == name {
			return &e.cfg.Routes[i]
		}
	}
	return nil
}

// serve is one request.
func (e *Endpoint) serve(w http.ResponseWriter, r *http.Request) {
	own := r.Context().Value(connectionKey{}).(*conn)
	own.unread = nil
	x := &exchange{connection: own.number, method: r.Method, rawPath: r.URL.Path, remote: r.RemoteAddr,
		start:         e.cfg.Now(),
		requestHeader: r.Header.Clone(), purse: e.purse, response: &passage{memory: &e.memory, dir: e.cfg.Dir}}
	what, known := classify(r.Method, r.URL.Path)
	x.asked = what
	route := e.route(what.route)
	out := &tap{ResponseWriter: w, x: x, now: e.cfg.Now, early: e.cfg.Budget.measured()}
	if route != nil {
		out.key = route.Key
	}
	defer func() {
		x.end = e.cfg.Now()
		if broken := x.failure == "" || x.failure == schema.ModelErrorBroken; broken && r.Context().Err() != nil &&
			!x.whole && x.refused == "" {
			x.failure = schema.ModelErrorLeft
		}
		x.mu.Lock()
		x.ended = true
		x.mu.Unlock()
		e.cfg.Record.add(x) // also when the proxy ends the connection by a panic
	}()
	// All of it is read, also where it is refused, so that the kernel's count of bytes can be compared.
	var err error
	if x.request, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest)); err != nil {
		x.refused = schema.ModelRefusedRequest
		status := http.StatusBadRequest
		if too := new(http.MaxBytesError); errors.As(err, &too) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(out, x, status, "the request could not be read: "+err.Error())
		return
	}
	switch {
	case !e.mayAsk(r, route):
		x.refused = schema.ModelRefusedCredential
		refuse(out, x, http.StatusUnauthorized,
			"this is not the token of the run, which its model gateway expects: take the key from the environment")
		return
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		x.refused = schema.ModelRefusedWebSocket
		out.Header().Set("Upgrade", "HTTP/1.1")
		refuse(out, x, http.StatusUpgradeRequired, "the model gateway passes on no WebSockets")
		return
	case !known || route == nil || r.URL.IsAbs() || r.URL.RawPath != "":
		x.refused = schema.ModelRefusedPath
		refuse(out, x, http.StatusForbidden,
			"the model gateway passes on only requests that ask a model, and only to the providers "+
				"that it has a key for")
		return
	}
	if why := e.check(x); why != nil {
		x.refused = why.word
		status := http.StatusBadRequest
		if why.word == schema.ModelRefusedBackground {
			status = http.StatusForbidden
		}
		refuse(out, x, status, why.message)
		return
	}
	if e.cfg.Replay != nil {
		e.replay(out, x)
		return
	}
	e.cfg.Record.began(x)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(x.request)), int64(len(x.request)), nil
	e.proxies[what.route].ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// exchangeKey is the key, in a request's context, of its exchange.
type exchangeKey struct{}

// check says why a request is not passed on that asks a model; nil: it is.
func (e *Endpoint) check(x *exchange) *refusal {
	if x.api != wire.Responses && (e.purse == nil && !e.cfg.DenyProviderTools || !counts(x.api)) {
		return nil
	}
	q, body, err := x.read()
	if x.api == wire.Responses && (q.Background || err != nil) {
		return &refusal{schema.ModelRefusedBackground,
			"the model gateway passes on no background requests: their answers may come after the run"}
	}
	if why := providerTools(q, body); e.cfg.DenyProviderTools && why != "" {
		return &refusal{schema.ModelRefusedTools,
			"the policy denies tools that the provider runs (model.provider_tools), and the request " + why}
	}
	return e.purse.admit(x, q)
}

// read is what the request says, and its body without a content encoding. What it says is empty after an error.
func (x *exchange) read() (q *wire.Request, body []byte, err error) {
	q = &wire.Request{}
	if body, err = decoded(bytes.NewReader(x.request), x.requestHeader); err == nil {
		q = wire.ReadRequest(x.api, body)
	}
	if x.model != "" {
		q.Model = x.model
	}
	q.Stream = q.Readable && (q.Stream || x.stream)
	return q, body, err
}

// replay answers a request from the bundle.
func (e *Endpoint) replay(w http.ResponseWriter, x *exchange) {
	q, body, _ := x.read()
	a, err := e.cfg.Replay.Take(&tape.Request{
		Route: x.route, Path: x.rawPath, Model: q.Model, Stream: q.Stream, Body: e.cfg.Record.redact(body),
	}, e.cfg.ReplayStrict)
	if err != nil {
		x.refused, x.missed = schema.ModelRefusedMiss, valid(err.Error())
		refuse(w, x, http.StatusBadRequest, "the replayed bundle has no answer: "+err.Error())
		return
	}
	x.replayed = &schema.ModelReplayed{Seq: a.Seq, Drift: a.Drift, Places: a.Places, Redacted: a.Redacted}
	e.cfg.Record.began(x)
	switch {
	case a.Unreachable:
		x.failure = schema.ModelErrorUnreachable
		refuse(w, x, http.StatusBadGateway, "the model gateway could not reach the provider, in the replayed run")
		return
	case a.Status == 0:
		panic(http.ErrAbortHandler)
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	if !a.Broken && !wire.IsStream(a.Headers["content-type"]) {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
	_ = http.NewResponseController(w).Flush()
	if a.Broken {
		x.failure = schema.ModelErrorBroken
		panic(http.ErrAbortHandler)
	}
	x.whole = true
}

// providerTools says how a request has the provider run tools, or might; empty: it does not.
func providerTools(q *wire.Request, body jsontext.Value) string {
	if !q.Readable || !body.IsValid() { // or two readers take it for different things
		return "cannot be read: send JSON without repeated names, without a content encoding or with gzip or zstd"
	}
	if q.Stored != "" {
		return fmt.Sprintf("has %q, which may bring some: send what it stands for", q.Stored)
	}
	for _, t := range q.Tools {
		if t.Provider {
			return fmt.Sprintf("declares %.200q: turn that tool off in the agent (Codex: -c web_search=disabled)",
				t.Name)
		}
	}
	return ""
}

// mayAsk reports whether all that a request carries as credentials is the run's token, or its route takes the agent's
// own.
func (e *Endpoint) mayAsk(r *http.Request, route *Route) bool {
	if route != nil && route.login() {
		return true
	}
	all := credentials(r)
	for _, c := range all {
		if subtle.ConstantTimeCompare([]byte(c), []byte(e.token)) != 1 {
			return false
		}
	}
	return len(all) > 0
}

// rewrite makes the request to the provider.
func (r *Route) rewrite(p *httputil.ProxyRequest) {
	x := p.In.Context().Value(exchangeKey{}).(*exchange)
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = r.Upstream.Scheme, r.Upstream.Host, r.Upstream.Host
	p.Out.URL.Path, p.Out.URL.RawPath, p.Out.URL.User = r.Upstream.Path+x.path, "", nil
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	r.authorize(p.Out)
	p.Out.Header.Set("Accept-Encoding", "identity")
}

// unreachable answers a request that the provider did not.
func (e *Endpoint) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	if errors.Is(err, errKey) {
		x.failure = schema.ModelErrorKey
		refuse(w, x, http.StatusBadGateway, "the provider's answer had the key in it, and was not passed on")
		return
	}
	if r.Context().Err() != nil {
		x.failure = schema.ModelErrorLeft
		return
	}
	x.failure = schema.ModelErrorUnreachable
	refuse(w, x, http.StatusBadGateway, "the model gateway could not reach the provider: "+err.Error())
}

// refuse answers a request in the form that the API has for errors.
func refuse(w http.ResponseWriter, x *exchange, status int, message string) {
	message = "assay-run: " + message
	kind, rpc := "invalid_request_error", "INVALID_ARGUMENT"
	switch status {
	case http.StatusUnauthorized:
		kind, rpc = "authentication_error", "UNAUTHENTICATED"
	case http.StatusForbidden:
		kind, rpc = "permission_error", "PERMISSION_DENIED"
	case http.StatusBadGateway:
		kind, rpc = "api_error", "UNAVAILABLE"
	}
	var doc any
	switch x.route {
	case Anthropic:
		doc = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}
	case Gemini:
		doc = map[string]any{"error": map[string]any{"code": status, "message": message, "status": rpc}}
	default:
		doc = map[string]any{"error": map[string]any{"message": message, "type": kind, "code": nil, "param": nil}}
	}
	body, _ := json.Marshal(doc, json.Deterministic(true)) // plain data always encodes
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// tap copies an answer to the record once it has passed.
type tap struct {
	http.ResponseWriter
	x   *exchange
	now func() int64
	key string // the provider's
	// early copies what passes before it has passed. Once the agent knows what it was answered, the
	// budget then does too.
	early bool
}

// Unwrap lets http.ResponseController find Flush.
func (t *tap) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *tap) WriteHeader(status int) {
	switch {
	case status < 200 && t.key != "" && inHeader(t.Header(), t.key):
		clear(t.Header())
		return
	case status >= 200:
		t.x.mu.Lock()
		t.x.status, t.x.responseHeader = status, t.Header().Clone()
		t.x.length, _ = strconv.ParseInt(t.Header().Get("Content-Length"), 10, 64)
		t.x.mu.Unlock()
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tap) Write(b []byte) (int, error) {
	t.x.mark(t.now(), len(b)) // before the agent can act on it
	if t.early {
		t.copy(b)
		return t.ResponseWriter.Write(b)
	}
	n, err := t.ResponseWriter.Write(b)
	t.copy(b[:n])
	return n, err
}

func (t *tap) copy(b []byte) {
	if len(b) == 0 {
		return
	}
	if t.x.first == 0 {
		t.x.first = t.now()
	}
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.x.response.write(b)
}
