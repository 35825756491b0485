package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// noteTimeout is how long the server may take to accept a message that needs no answer.
const noteTimeout = 30 * time.Second

// maxHeader limits the headers of an answer, in bytes.
const maxHeader = 256 << 10

// Remote is an MCP server that speaks Streamable HTTP.
type Remote struct {
	URL    string
	Header http.Header // sent with each request
	// Forward, if set, returns headers of the client to send with a request.
	Forward func() http.Header
	Warn    func(message string)
}

// Start returns a connection. Nothing is sent before the first message is written.
func (r Remote) Start() (*Server, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	c := &remote{Remote: r, client: &http.Client{Transport: transport, CheckRedirect: sameHost}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	out, w := io.Pipe()
	c.out = w
	return &Server{In: c, Out: out, Accepted: func(f func(jsontext.Value)) {
		c.accepted = f
	}, Signal: func(s syscall.Signal) {
		if s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP {
			c.end()
		}
	}, Close: c.end}, nil
}

// sameHost follows a redirect only to the same scheme and host, so that what a client sends to a server, such as its
// login, reaches no other server.
func sameHost(next *http.Request, via []*http.Request) error {
	if len(via) >= 10 || next.URL.Scheme != via[0].URL.Scheme || next.URL.Host != via[0].URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// remote is a connection to a remote server.
type remote struct {
	Remote
	client   *http.Client
	accepted func(id jsontext.Value)
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup // requests without an answer
	once     sync.Once

	writing sync.Mutex
	out     *io.PipeWriter

	renewing sync.Mutex // held while the session is renewed

	mu       sync.Mutex
	session  string
	version  string
	hello    []byte             // the client's initialize
	ready    []byte             // the client's notifications/initialized; nil: not yet sent
	standing context.CancelFunc // ends the stream for the server's own messages
}

// Write sends one message, which ends with a newline.
func (c *remote) Write(line []byte) (int, error) {
	body := bytes.Clone(line)
	m, _ := jsonrpc.Decode(jsontext.Value(bytes.TrimSpace(body)))
	if m.Method != "" && m.ID != nil || m.Method == "" && m.ID == nil { // a request, or a batch
		c.work.Go(func() { c.request(body, &asked{m, requestsOf(body)}) })
		return len(line), nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, noteTimeout)
	defer cancel()
	resp, err := c.post(ctx, body, m)
	if err == nil {
		resp.Body.Close()
		switch used := usedSession(resp); {
		case resp.StatusCode/100 == 2:
		case c.accepted == nil && c.expired(resp):
			if err = c.renew(used); err == nil {
				err = errors.New("its session had expired, and has been renewed")
			}
		default:
			err = errors.New("it answered " + resp.Status)
		}
	}
	if err != nil {
		c.warn(fmt.Sprintf("the MCP server did not take the client's %s: %v", orAnswer(m.Method), withoutURL(err)))
	}
	if m.Method == "notifications/initialized" {
		c.mu.Lock()
		c.ready = body
		c.mu.Unlock()
		c.listen()
	}
	return len(line), nil
}

// asked is a request or a batch. A batch has no id of its own.
type asked struct {
	*jsonrpc.Message
	ids []jsontext.Value // ids of its requests without an answer
}

// answered reports whether this message of the server answers the last open request.
func (a *asked) answered(text []byte) bool {
	list, _, _ := jsonrpc.Split(text)
	for _, one := range list {
		if m, err := jsonrpc.Decode(one); err == nil && m.Method == "" && m.ID != nil {
			a.ids = slices.DeleteFunc(a.ids, func(id jsontext.Value) bool {
				return jsonrpc.IDText(id) == jsonrpc.IDText(m.ID)
			})
		}
	}
	return len(a.ids) == 0
}

// requestsOf returns the ids of the requests in a message or a batch.
func requestsOf(text []byte) (ids []jsontext.Value) {
	list, _, _ := jsonrpc.Split(text)
	for _, one := range list {
		if m, err := jsonrpc.Decode(one); err == nil && m.Method != "" && m.ID != nil {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func orAnswer(method string) string {
	if method == "" {
		return "answer"
	}
	return method
}

// Close ends the output once every request has its answer.
func (c *remote) Close() error {
	go func() {
		c.work.Wait()
		c.out.Close()
	}()
	return nil
}

// end ends the connection and the server's session.
func (c *remote) end() error {
	c.once.Do(func() {
		c.cancel()
		c.mu.Lock()
		session := c.session
		c.mu.Unlock()
		if session != "" {
			ctx, cancel := context.WithTimeout(context.Background(), endGrace)
			defer cancel()
			if req, err := c.newRequest(ctx, http.MethodDelete, nil); err == nil {
				if resp, err := c.client.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		}
		c.out.Close()
		c.client.CloseIdleConnections()
	})
	return nil
}

// request sends a request and passes on its answer, or an error if there is none.
func (c *remote) request(body []byte, m *asked) {
	resp, err := c.post(c.ctx, body, m.Message)
	if err != nil {
		c.fail(m, withoutURL(err).Error(), nil)
		return
	}
	defer resp.Body.Close()
	if m.Method == "initialize" {
		c.mu.Lock()
		c.session, c.hello = resp.Header.Get(headerSession), body
		c.mu.Unlock()
	} else if c.expired(resp) {
		c.lost(m, resp)
		return
	}
	if resp.StatusCode == http.StatusOK && c.accepted != nil {
		for _, id := range m.ids {
			c.accepted(id)
		}
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusOK && kind == "text/event-stream":
		c.stream(resp, m)
	case kind == "application/json":
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxLine+1))
		if err != nil || len(text) > maxLine {
			c.fail(m, "its answer is too large or broke off", nil)
			return
		}
		if resp.StatusCode != http.StatusOK && !m.answered(bytes.TrimSpace(text)) {
			c.fail(m, "it answered "+resp.Status, resp)
			return
		}
		c.pass(text, m)
	case len(m.ids) == 0 && resp.StatusCode/100 == 2: // a batch without requests
	default:
		c.fail(m, "it answered "+resp.Status, resp)
	}
}

// usedSession returns the session that a request named.
func usedSession(resp *http.Response) string {
	if resp.Request == nil {
		return ""
	}
	return resp.Request.Header.Get(headerSession)
}

// ping asks whether the server knows the session.
const ping = `{"jsonrpc":"2.0","id":"assay-run-session","method":"ping"}`

// expired reports whether an answer says that the server does not know the session any more: a 404 (MCP 2025-06-18,
// Session Management). Servers that have restarted also answer 400; if the session is the reason, a ping gets one too.
func (c *remote) expired(resp *http.Response) bool {
	switch {
	case usedSession(resp) == "":
		return false
	case resp.StatusCode == http.StatusNotFound:
		return true
	case resp.StatusCode != http.StatusBadRequest:
		return false
	}
	ctx, cancel := context.WithTimeout(c.ctx, noteTimeout)
	defer cancel()
	m, _ := jsonrpc.Decode(jsontext.Value(ping))
	again, err := c.post(ctx, []byte(ping), m)
	if err != nil {
		return false
	}
	again.Body.Close()
	return again.StatusCode == http.StatusBadRequest || again.StatusCode == http.StatusNotFound
}

// lost answers a request whose session has expired. A client over HTTP gets the 404 and initializes again. A client
// over stdio cannot know of sessions: its session is renewed for its next request. The server has not executed the
// request; the client decides whether it sends it again.
func (c *remote) lost(m *asked, resp *http.Response) {
	if c.accepted != nil {
		data, _ := json.Marshal(httpStatus{Status: http.StatusNotFound, Expired: true})
		c.failWith(m, "its session has expired: initialize again", data)
		return
	}
	if err := c.renew(usedSession(resp)); err != nil {
		c.fail(m, "its session has expired and could not be renewed: "+withoutURL(err).Error(), nil)
		return
	}
	c.fail(m, "its session had expired, and has been renewed: send the request again", nil)
}

// renew starts a new session in place of one that has expired, with the client's own initialize.
func (c *remote) renew(expired string) (err error) {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	c.mu.Lock()
	now, hello, ready := c.session, c.hello, c.ready
	version := c.version
	c.mu.Unlock()
	if now != expired {
		return nil // another request has renewed it
	}
	defer func() {
		if err != nil { // the next request tries again
			c.mu.Lock()
			c.session, c.version = expired, version
			c.mu.Unlock()
		}
	}()
	ctx, cancel := context.WithTimeout(c.ctx, noteTimeout)
	defer cancel()
	m, err := jsonrpc.Decode(jsontext.Value(bytes.TrimSpace(hello)))
	if err != nil {
		return err
	}
	resp, err := c.post(ctx, hello, m)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("it answered " + resp.Status)
	}
	answer, err := firstAnswer(resp, &asked{m, []jsontext.Value{m.ID}})
	if err != nil {
		return err
	}
	if a, err := jsonrpc.Decode(answer); err != nil || a.Result == nil {
		return errors.New("it refused to initialize again")
	}
	c.mu.Lock()
	c.session = resp.Header.Get(headerSession)
	c.mu.Unlock()
	c.initialized(answer)
	c.warn("the MCP server's session had expired: it has been renewed")
	if ready == nil {
		return nil
	}
	note, _ := jsonrpc.Decode(jsontext.Value(bytes.TrimSpace(ready)))
	told, err := c.post(ctx, ready, note)
	if err != nil {
		return err
	}
	told.Body.Close()
	c.listen()
	return nil
}

// firstAnswer returns the answer to a request, from a document or a stream.
func firstAnswer(resp *http.Response, m *asked) (answer []byte, err error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "text/event-stream" {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
		return oneLine(text), err
	}
	err = eachEvent(resp.Body, func(e event) error {
		if line := oneLine(e.data); len(line) > 0 && m.answered(line) {
			answer = line
			return errAnswered
		}
		return nil
	})
	if errors.Is(err, errAnswered) {
		return answer, nil
	}
	return nil, errors.Join(err, errors.New("the stream of its answer broke off"))
}

// pass passes on a message of the server, and reports whether m is now answered.
func (c *remote) pass(text []byte, m *asked) (answered bool) {
	line := oneLine(text)
	if len(line) == 0 {
		return false
	}
	if m != nil {
		if answered = m.answered(line); answered && m.Method == "initialize" {
			c.initialized(line)
		}
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out.Write(append(line, '\n'))
	return answered
}

// initialized stores the protocol version that client and server agreed on.
func (c *remote) initialized(line []byte) {
	var a struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(line, &a) == nil && headerText(a.Result.Version) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.version = a.Result.Version
	}
}

// httpStatus is the data of an error that stands for an HTTP status. The client may need it to log in.
type httpStatus struct {
	Status    int    `json:"http_status"`
	Challenge string `json:"www_authenticate,omitempty"`
	Expired   bool   `json:"session_expired,omitempty"` // the server does not know the session any more
}

// fail answers a request with an error, because the server did not answer it.
func (c *remote) fail(m *asked, why string, resp *http.Response) {
	var data []byte
	if resp != nil {
		data, _ = json.Marshal(httpStatus{Status: resp.StatusCode, Challenge: resp.Header.Get("WWW-Authenticate")})
	}
	c.failWith(m, why, data)
}

// failWith is fail with the data of the error.
func (c *remote) failWith(m *asked, why string, data []byte) {
	if c.ctx.Err() != nil {
		why = "the gateway is closing"
	}
	if len(m.ids) == 0 {
		c.warn("the MCP server refused a batch from the client: " + why)
	}
	for _, id := range m.ids {
		c.pass(errorResponse(id, jsonrpc.CodeInternal, "assay-run: no answer from the MCP server: "+why, data), nil)
	}
}

// withoutURL returns a request's error without its URL, which can contain secrets.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (c *remote) warn(message string) {
	if c.Warn != nil {
		c.Warn(message)
	}
}

// Headers of MCP's Streamable HTTP transport.
const (
	headerSession  = "Mcp-Session-Id"
	headerVersion  = "Mcp-Protocol-Version"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
	headerLastSeen = "Last-Event-Id"
)

func (c *remote) newRequest(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL, body)
	if err != nil {
		return nil, err
	}
	headers := []http.Header{c.Header}
	if c.Forward != nil {
		headers = append(headers, c.Forward())
	}
	for _, h := range headers {
		for name, values := range h {
			req.Header[name] = values
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != "" {
		req.Header.Set(headerSession, c.session)
	}
	if c.version != "" {
		req.Header.Set(headerVersion, c.version)
	}
	return req, nil
}

func (c *remote) post(ctx context.Context, body []byte, m *jsonrpc.Message) (*http.Response, error) {
	if m.Method == "initialize" {
		c.mu.Lock()
		c.session, c.version = "", ""
		c.mu.Unlock()
	}
	req, err := c.newRequest(ctx, http.MethodPost, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	var p struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if m.Method != "" {
		req.Header.Set(headerMethod, m.Method)
		if m.Params.Kind() == '{' && json.Unmarshal(m.Params, &p) == nil {
			if name := p.Name + p.URI; name != "" && headerText(name) {
				req.Header.Set(headerName, name)
			}
			if p.Meta.Version != "" && headerText(p.Meta.Version) {
				req.Header.Set(headerVersion, p.Meta.Version)
			}
		}
	}
	return c.client.Do(req)
}

// headerText reports whether a header may contain the text unencoded.
func headerText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// How long to wait before resuming a stream that broke off, and how often to retry without receiving anything.
const (
	resumeFirst = 500 * time.Millisecond
	resumeLeast = 100 * time.Millisecond // minimum, whatever the server asks for
	resumeMost  = 20 * time.Second
	resumeTries = 8
)

// standTimeout is how long the client's next message waits for the stream of the server's own messages. Some servers
// open it only after their first message.
const standTimeout = 2 * time.Second

// errAnswered ends the reading of a stream.
var errAnswered = errors.New("answered")

// stream passes on the messages of a stream until m is answered. A stream that breaks off is resumed after the last
// received event.
func (c *remote) stream(resp *http.Response, m *asked) {
	last, wait, tries := "", resumeFirst, 0
	for {
		err := eachEvent(resp.Body, func(e event) error {
			if e.id != "" || e.data != nil {
				tries = 0
			}
			if e.id != "" {
				last = e.id
			}
			wait = e.wait(wait)
			if e.data != nil && c.pass(e.data, m) {
				return errAnswered
			}
			return nil
		})
		resp.Body.Close()
		if errors.Is(err, errAnswered) || c.ctx.Err() != nil {
			return
		}
		for resp = nil; resp == nil; tries++ {
			if last == "" || tries >= resumeTries {
				c.fail(m, "the stream of its answer broke off", nil)
				return
			}
			if resp, err = c.resume(c.ctx, last, wait); err != nil {
				c.fail(m, "the stream of its answer broke off: "+withoutURL(err).Error(), nil)
				return
			}
			wait = min(wait*3/2, resumeMost)
		}
	}
}

// resume requests a stream from an event on. It returns nil without an error if the server cannot be reached at the
// moment.
func (c *remote) resume(ctx context.Context, last string, wait time.Duration) (*http.Response, error) {
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	req, err := c.newRequest(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set(headerLastSeen, last)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, ctx.Err() // unreachable at the moment
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == "text/event-stream" {
		return resp, nil
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return nil, nil
	}
	return nil, errors.New("it answered " + resp.Status)
}

// listen passes on the server's own messages, if the server offers a stream for them. It returns once the stream is
// open, or if the server takes too long to open it. Messages that the server sends before that may be lost.
func (c *remote) listen() {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	old := c.standing
	c.standing = cancel
	c.mu.Unlock()
	if old != nil {
		old()
	}
	stands := make(chan struct{})
	opened := sync.OnceFunc(func() { close(stands) })
	go func() {
		defer cancel()
		defer opened()
		last, wait := "", time.Duration(0)
		for ctx.Err() == nil {
			resp, err := c.resume(ctx, last, wait)
			opened()
			if err != nil {
				return // the server offers no such stream
			}
			if wait = min(max(wait*3/2, resumeFirst), resumeMost); resp == nil {
				continue
			}
			_ = eachEvent(resp.Body, func(e event) error {
				if e.id != "" {
					last = e.id
				}
				wait = e.wait(resumeFirst)
				if e.data != nil {
					c.pass(e.data, nil)
				}
				return nil
			})
			resp.Body.Close()
		}
	}()
	select {
	case <-stands:
	case <-time.After(standTimeout):
	}
}
