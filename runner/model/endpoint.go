package model

import (
	"cmp"
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
	"github.com/assay-run/assay-run/schema/modelfile"
)

// Config configures an Endpoint.
type Config struct {
	Routes []Route // at least one
	// Now returns the time since run_started, in nanoseconds.
	Now func() int64
	// Record gets each exchange once it has ended. It must not block.
	Record *Recorder
	// Dir is a directory for answers that are too large for memory, until they are recorded.
	Dir string
	// Drained reports whether the peer has closed a connection and everything that it sent was read. Nil: not known.
	Drained func(syscall.Conn) bool
	// Connections limits the connections of a listener at a time; others wait. 0 means MaxConnections.
	Connections int
	// Budget limits the requests to providers. Prices is needed if it limits the cost.
	Budget modelfile.Budget
	Prices *modelfile.Prices
	// Replay has the answers of an earlier run. Nil: the providers answer. With ReplayStrict, a request that differs
	// from the recorded one in any way gets no answer.
	Replay       *tape.Cassette
	ReplayStrict bool
	// NoProviderTools says why requests that make the provider load, read or run something for the agent are refused.
	// Empty means that they are not.
	NoProviderTools string
}

// Endpoint passes an agent's requests on to the providers. Its methods are safe for concurrent use.
type Endpoint struct {
	cfg     Config
	token   string
	address string
	server  *http.Server
	proxies map[string]*httputil.ReverseProxy
	purse   *purse
	memory  *memory
	checks  sync.Mutex // serializes checks of bodies that need much memory
	serving sync.WaitGroup
	conns   sync.WaitGroup
	closed  atomic.Bool
}

// maxHeader limits the headers of a request, in bytes. Providers accept less.
const maxHeader = 128 << 10

// pool keeps buffers for answers.
type pool struct{ sync.Pool }

func (p *pool) Get() []byte  { return *p.Pool.Get().(*[]byte) }
func (p *pool) Put(b []byte) { p.Pool.Put(&b) }

var buffers = &pool{sync.Pool{New: func() any { return new(make([]byte, 32<<10)) }}}

// MaxConnections limits the connections of a listener.
const MaxConnections = 1000

// maxRequest limits the body of a request, in bytes. Providers accept less.
const maxRequest = 128 << 20

// Listen makes an endpoint on a loopback port.
func Listen(cfg Config) (*Endpoint, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("model gateway: %w", err)
	}
	if cfg.Replay != nil {
		cfg.Budget.Cost = 0 // a replay costs nothing
	}
	e := &Endpoint{cfg: cfg, token: "assay-run-" + rand.Text(), address: l.Addr().String(),
		proxies: map[string]*httputil.ReverseProxy{}, purse: newPurse(cfg.Budget, cfg.Prices), memory: newMemory()}
	quiet := log.New(io.Discard, "", 0)
	e.server = &http.Server{Handler: http.HandlerFunc(e.serve), ErrorLog: quiet,
		ConnContext: withConnection, ConnState: e.changed, DisableGeneralOptionsHandler: true,
		MaxHeaderBytes: maxHeader}
	// There is no timeout: a model may think for as long as its provider lets it.
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64,
	}
	for i := range cfg.Routes {
		route := &cfg.Routes[i]
		e.proxies[route.Name] = &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { route.rewrite(r) },
			ModifyResponse: func(r *http.Response) error { return guard(r, route.Key) },
			ErrorHandler:   e.unreachable, ErrorLog: quiet, Transport: transport, FlushInterval: -1,
			BufferPool: buffers,
		}
	}
	e.Serve(l)
	return e, nil
}

// Serve also serves the connections of l, and owns it.
func (e *Endpoint) Serve(l net.Listener) {
	room := make(chan struct{}, cmp.Or(e.cfg.Connections, MaxConnections))
	closed, end := context.WithCancel(context.Background())
	e.serving.Go(func() { _ = e.server.Serve(counting{l, e, room, closed, end}) })
}

// changed tracks the connections' states. A request that cannot be read never reaches serve, but is recorded too.
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
			refused: schema.ModelRefusedRequest, sent: e.passage(), response: e.passage()}
	case http.StateClosed:
		e.conns.Done()
	}
}

// Address is the endpoint's host and port.
func (e *Endpoint) Address() string { return e.address }

// Token is what the agent's requests carry in place of a key.
func (e *Endpoint) Token() string { return e.token }

// Spent is closed when a limit of the budget has stopped a request. It is nil without a budget.
func (e *Endpoint) Spent() <-chan struct{} {
	if e.purse == nil {
		return nil
	}
	return e.purse.over
}

// LimitsHit returns the limits of the budget that stopped requests, in the form of result.json.
func (e *Endpoint) LimitsHit() []string { return e.purse.limitsHit() }

// Close ends the endpoint, and waits until the recorder has everything that passed.
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

// Environ returns env with the variables that point an agent to the endpoint, and without keys and variables that
// would point it elsewhere. direct means that programs must be told not to use a proxy for the endpoint.
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
			return r.Key != "" && strings.Contains(value, r.Key)
		})
	})
	return append(kept, set...)
}

// noProxy returns the variable for hosts that need no proxy, with the endpoint added.
func noProxy(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	if value == "*" || slices.Contains(strings.Split(value, ","), "127.0.0.1") { // a star counts only if it is alone
		return name + "=" + value
	}
	return name + "=" + strings.TrimPrefix(value+",127.0.0.1", ",")
}

// route returns the route of a name, or nil.
func (e *Endpoint) route(name string) *Route {
	for i := range e.cfg.Routes {
		if e.cfg.Routes[i].Name == name {
			return &e.cfg.Routes[i]
		}
	}
	return nil
}

// serve handles one request.
func (e *Endpoint) serve(w http.ResponseWriter, r *http.Request) {
	own := r.Context().Value(connectionKey{}).(*conn)
	own.unread = nil
	x := &exchange{connection: own.number, method: r.Method, rawPath: r.URL.Path, remote: r.RemoteAddr,
		start:    e.cfg.Now(),
		encoding: r.Header.Get("Content-Encoding"), purse: e.purse, sent: e.passage(), response: e.passage()}
	x.sent.expect = max(0, r.ContentLength)
	what, known := classify(r.Method, r.URL.Path)
	x.asked = what
	route := e.route(what.route)
	out := &tap{ResponseWriter: w, x: x, now: e.cfg.Now, early: e.cfg.Budget.Measured()}
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
		e.cfg.Record.add(x) // also if the proxy ends the connection by a panic
	}()
	// The answer may start before the whole request was read.
	_ = http.NewResponseController(w).EnableFullDuplex()
	body := http.MaxBytesReader(w, r.Body, maxRequest)
	why := e.shut(r, route, known)
	switch {
	case why != nil:
	case e.cfg.Record.full():
		why = &refusal{schema.ModelRefusedRequest, "this run has asked for more than is recorded",
			http.StatusBadRequest}
	case r.ContentLength > maxRequest:
		why = &refusal{schema.ModelRefusedRequest, "the request is too large", http.StatusRequestEntityTooLarge}
	}
	whole := why != nil || e.cfg.Replay != nil || e.decides(x) || r.ContentLength == 0
	if whole {
		// Read refused requests too, so that the byte count matches the kernel's.
		if err := x.receive(body, why); err != nil && why == nil {
			why = unreadable(err)
		}
	}
	if why == nil && e.decides(x) {
		why = e.check(x)
	}
	if why != nil {
		x.refused = why.word
		if why.status == http.StatusUpgradeRequired {
			out.Header().Set("Upgrade", "HTTP/1.1")
		}
		refuse(out, x, why.status, why.message)
		return
	}
	if e.cfg.Replay != nil {
		e.replay(out, x)
		return
	}
	e.cfg.Record.began(x)
	if whole {
		e.cfg.Record.arrived(x)
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(x.sent.reader()), x.sent.size, nil
	} else {
		x.sent.lent = true
		x.upload = &upload{body: body, x: x, left: r.ContentLength, arrived: func() { e.cfg.Record.arrived(x) }}
		r.Body = x.upload
		defer x.upload.stop()
	}
	r.Header.Del("Upgrade") // it continues as HTTP
	ctx := context.WithValue(x.reach.trace(r.Context()), exchangeKey{}, x)
	e.proxies[what.route].ServeHTTP(out, r.WithContext(ctx))
}

// passage makes a store for a body of this endpoint.
func (e *Endpoint) passage() *passage { return &passage{memory: e.memory, dir: e.cfg.Dir} }

// shut returns why a request is not passed on whatever its body says, or nil.
func (e *Endpoint) shut(r *http.Request, route *Route, known bool) *refusal {
	switch {
	case !e.mayAsk(r, route):
		return &refusal{schema.ModelRefusedCredential,
			"this is not the token of the run, which its model gateway expects: take the key from the environment",
			http.StatusUnauthorized}
	case upgradesTo(r.Header, "websocket"):
		return &refusal{schema.ModelRefusedWebSocket, "the model gateway passes on no WebSockets",
			http.StatusUpgradeRequired}
	case !known || route == nil || r.URL.IsAbs() || r.URL.RawPath != "":
		return &refusal{schema.ModelRefusedPath,
			"the model gateway passes on only requests that ask a model, and only to the providers " +
				"that it has a key for",
			http.StatusForbidden}
	}
	return nil
}

// upgradesTo reports whether a request asks to upgrade to protocol.
func upgradesTo(h http.Header, protocol string) bool {
	for _, list := range h.Values("Upgrade") {
		for name := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(name), protocol) {
				return true
			}
		}
	}
	return false
}

// decides reports whether the body of a request decides if it is passed on.
func (e *Endpoint) decides(x *exchange) bool {
	return x.api == wire.Responses || counts(x.api) && e.purse != nil ||
		e.cfg.NoProviderTools != "" && x.api != wire.Models
}

// writer is an io.Writer that accepts all bytes.
type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// unreadable returns the refusal for a request whose body could not be read.
func unreadable(err error) *refusal {
	status := http.StatusBadRequest
	switch too := new(http.MaxBytesError); {
	case errors.As(err, &too):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, errNoRoom):
		status = http.StatusServiceUnavailable
	}
	return &refusal{schema.ModelRefusedRequest, "the request could not be read: " + err.Error(), status}
}

// exchangeKey is the context key of a request's exchange.
type exchangeKey struct{}

// large is the size in bytes from which bodies are read one at a time.
const large = 1 << 20

// alone calls f, which reads a request's body. Large bodies are read one at a time, to save memory.
func (e *Endpoint) alone(x *exchange, f func()) {
	if x.sent.size > large || x.encoding != "" {
		e.checks.Lock()
		defer e.checks.Unlock()
	}
	f()
}

// check returns why a request to a model is not passed on, or nil.
func (e *Endpoint) check(x *exchange) (why *refusal) {
	e.alone(x, func() {
		q, body, err := x.read()
		legible := err == nil && q.Readable && body.IsValid(jsontext.AllowInvalidUTF8(true))
		switch {
		case x.api == wire.Responses && q.Background:
			why = &refusal{schema.ModelRefusedBackground,
				"the model gateway passes on no background requests: their answers may come after the run",
				http.StatusForbidden}
		case e.cfg.NoProviderTools != "" && !(legible && len(q.Fetches) == 0):
			why = &refusal{schema.ModelRefusedTools, "the provider must not load, read or run anything for the " +
				"agent (" + e.cfg.NoProviderTools + "), and the request " + fetches(q, legible), http.StatusBadRequest}
		case x.api == wire.Responses && !legible: // another reader of the body may see a background request
			why = &refusal{schema.ModelRefusedRequest, "the request " + notClear, http.StatusBadRequest}
		default:
			why = e.purse.admit(x, q)
		}
	})
	return why
}

// notClear is the fault of a body that other readers could read differently.
const notClear = "cannot be read: send JSON without repeated names, without a content encoding or with gzip or zstd"

// replay answers a request from the bundle.
func (e *Endpoint) replay(w http.ResponseWriter, x *exchange) {
	var a *tape.Answer
	var err error
	e.alone(x, func() {
		q, body, _ := x.read()
		a, err = e.cfg.Replay.Take(&tape.Request{
			Route: x.route, Path: x.rawPath, Model: q.Model, Stream: q.Stream, Body: e.cfg.Record.redact(body),
		}, e.cfg.ReplayStrict)
	})
	if err != nil {
		x.refused, x.missed = schema.ModelRefusedMiss, valid(err.Error())
		refuse(w, x, http.StatusBadRequest, "the replayed bundle has no answer: "+err.Error())
		return
	}
	x.replayed = &schema.ModelReplayed{Seq: a.Seq, Drift: a.Drift, Places: a.Places, Redacted: a.Redacted}
	e.cfg.Record.began(x)
	e.cfg.Record.arrived(x)
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

// fetches says what a request makes the provider do for the agent, or might, and what to do about it. legible means
// that every reader reads the request the same way.
func fetches(q *wire.Request, legible bool) string {
	if !legible {
		return notClear
	}
	switch f := q.Fetches[0]; f.Kind {
	case wire.FetchMedia:
		from := ""
		if f.Host != "" {
			from = " from " + f.Host
		}
		return fmt.Sprintf("has %.200q by URL, which the provider would load%s: send the content itself, in base64",
			f.What, from)
	case wire.FetchStored:
		return fmt.Sprintf("has %.200q, which stands for something that the provider has stored: "+
			"send what it stands for", f.What)
	case wire.FetchUnknown:
		return fmt.Sprintf("has a part of the kind %.200q, which this version does not know and which may make the "+
			"provider load something: send text, or content in base64", f.What)
	case wire.FetchMCP:
		return fmt.Sprintf("declares the remote MCP server %.200q: work without it, or let the agent connect to it "+
			"by itself if the run can reach it", f.What)
	default:
		return fmt.Sprintf("declares %.200q: turn that tool off in the agent (Codex: -c web_search=disabled)", f.What)
	}
}

// mayAsk reports whether the request carries the run's token and no other credentials, or its route passes on the
// agent's own login.
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

// unreachable answers a request that the provider did not answer.
func (e *Endpoint) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	if errors.Is(err, errKey) {
		x.failure = schema.ModelErrorKey
		refuse(w, x, http.StatusBadGateway, "the provider's answer had the key in it, and was not passed on")
		return
	}
	if x.upload != nil && x.upload.stop() != nil {
		why := unreadable(x.upload.err)
		x.refused = why.word
		refuse(w, x, why.status, why.message)
		return
	}
	if r.Context().Err() != nil {
		x.failure = schema.ModelErrorLeft
		return
	}
	switch {
	case !x.reach.asked.Load(): // it was not even tried, because of what the agent sent
		x.refused = schema.ModelRefusedRequest
		refuse(w, x, http.StatusBadRequest, "the request cannot be passed on: "+err.Error())
	case !x.reach.connected.Load():
		x.failure = schema.ModelErrorUnreachable
		refuse(w, x, http.StatusBadGateway, "the model gateway could not reach the provider: "+err.Error())
	default:
		x.failure = schema.ModelErrorNoAnswer
		refuse(w, x, http.StatusBadGateway, "the model gateway got no answer from the provider: "+err.Error())
	}
}

// refuse answers a request with an error in the API's format.
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
	case modelfile.Anthropic:
		doc = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}
	case modelfile.Gemini:
		doc = map[string]any{"error": map[string]any{"code": status, "message": message, "status": rpc}}
	default:
		doc = map[string]any{"error": map[string]any{"message": message, "type": kind, "code": nil, "param": nil}}
	}
	body, _ := json.Marshal(doc, json.Deterministic(true)) // plain data always encodes
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// tap copies an answer to the record after it has passed.
type tap struct {
	http.ResponseWriter
	x   *exchange
	now func() int64
	key string // the provider's key
	// early copies bytes before they pass, so that the budget knows the usage no later than the agent does.
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
		t.x.response.expect = max(0, t.x.length)
		t.x.mu.Unlock()
		if t.x.upload.coming() { // the server would take the rest for the next request
			t.Header().Set("Connection", "close")
		}
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
