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
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Headers of MCP's Streamable HTTP transport.
const (
	headerSession  = "Mcp-Session-Id"
	headerVersion  = "Mcp-Protocol-Version"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
	headerLastSeen = "Last-Event-Id"
)

// How long the proxy waits before it asks again for a stream that broke off, how
// often without having got anything, and how long it waits for what is owed to
// nobody.
const (
	resumeFirst = 500 * time.Millisecond
	resumeMost  = 20 * time.Second
	resumeTries = 8
	noteTimeout = 30 * time.Second
)

// Remote is an MCP server that speaks Streamable HTTP.
type Remote struct {
	URL    string
	Header http.Header // sent with each request
	// Forward, if set, gives the headers of the client's own that go with a
	// request.
	Forward func() http.Header
	Warn    func(message string)
}

// Start makes a connection, which sends its first request when it is given one.
func (r Remote) Start() (*Server, error) {
	c := &remote{Remote: r, client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	out, w := io.Pipe()
	c.out = w
	return &Server{In: c, Out: out, Signal: func(s syscall.Signal) {
		if s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP {
			c.end()
		}
	}, Close: c.end}, nil
}

// remote is a connection to a remote server.
type remote struct {
	Remote
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // requests without an answer
	once   sync.Once

	writing sync.Mutex
	out     *io.PipeWriter

	mu       sync.Mutex
	session  string
	version  string
	standing context.CancelFunc // of the stream of what the server says unasked
}

// Write sends one message, which ends in a newline.
func (c *remote) Write(line []byte) (int, error) {
	m, _ := decode(jsontext.Value(bytes.TrimSpace(line)))
	body := bytes.Clone(line)
	if m.Method != "" && m.ID != nil || m.Method == "" && m.ID == nil { // a request, or a batch
		c.work.Go(func() { c.request(body, m) })
		return len(line), nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, noteTimeout)
	defer cancel()
	resp, err := c.post(ctx, body, m)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			err = errors.New("it answered " + resp.Status)
		}
	}
	if err != nil {
		c.warn(fmt.Sprintf("the MCP server did not take the client's %s: %v", orAnswer(m.Method), plain(err)))
	}
	if m.Method == "notifications/initialized" {
		c.listen()
	}
	return len(line), nil
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

func (c *remote) post(ctx context.Context, body []byte, m *message) (*http.Response, error) {
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

// headerText tells whether a text may stand in a header as it is.
func headerText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// request sends a request and passes its answer on, whatever becomes of it.
func (c *remote) request(body []byte, m *message) {
	resp, err := c.post(c.ctx, body, m)
	if err != nil {
		c.fail(m, plain(err).Error(), nil)
		return
	}
	defer resp.Body.Close()
	if m.Method == "initialize" {
		c.mu.Lock()
		c.session = resp.Header.Get(headerSession)
		c.mu.Unlock()
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusOK && kind == "text/event-stream":
		c.stream(resp, m)
	case kind == "application/json":
		text, err := io.ReadAll(io.LimitReader(resp.Body, MaxLine+1))
		if err != nil || len(text) > MaxLine {
			c.fail(m, "its answer is too large or broke off", nil)
			return
		}
		if resp.StatusCode != http.StatusOK && !c.answers(text, m) {
			c.fail(m, "it answered "+resp.Status, resp)
			return
		}
		c.pass(text, m)
	default:
		c.fail(m, "it answered "+resp.Status, resp)
	}
}

// answers tells whether a text is a response to a request.
func (c *remote) answers(text []byte, m *message) bool {
	a, err := decode(jsontext.Value(bytes.TrimSpace(text)))
	return err == nil && a.Method == "" && m.ID != nil && a.ID != nil && idKey(a.ID) == idKey(m.ID)
}

// pass passes a message of the server on, and tells whether it answers m.
func (c *remote) pass(text []byte, m *message) (answered bool) {
	line := oneLine(text)
	if len(line) == 0 {
		return false
	}
	if m != nil {
		if answered = c.answers(line, m); answered && m.Method == "initialize" {
			c.initialized(line)
		}
		answered = answered || m.ID == nil && line[0] == '[' // a batch's
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out.Write(append(line, '\n'))
	return answered
}

// initialized notes the version that the two sides speak from now on.
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

// errAnswered ends the reading of a stream.
var errAnswered = errors.New("answered")

// stream passes on what a stream says until m is answered. A stream that breaks
// off is asked for again, from the last event that came.
func (c *remote) stream(resp *http.Response, m *message) {
	last, wait, tries := "", resumeFirst, 0
	for {
		err := eachEvent(resp.Body, func(e event) error {
			tries = 0
			if e.id != "" {
				last = e.id
			}
			if e.retry > 0 {
				wait = min(e.retry, resumeMost)
			}
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
				c.fail(m, "the stream of its answer broke off: "+plain(err).Error(), nil)
				return
			}
			wait = min(wait*3/2, resumeMost)
		}
	}
}

// resume asks for a stream, from an event on. Nil without an error: it is not to
// be had right now.
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
		return nil, ctx.Err() // not there for a moment
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

// listen passes on what the server says unasked, as long as it offers that.
func (c *remote) listen() {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	old := c.standing
	c.standing = cancel
	c.mu.Unlock()
	if old != nil {
		old()
	}
	go func() {
		defer cancel()
		last, wait := "", time.Duration(0)
		for ctx.Err() == nil {
			resp, err := c.resume(ctx, last, wait)
			if err != nil {
				return // it offers none
			}
			if wait = min(max(wait*3/2, resumeFirst), resumeMost); resp == nil {
				continue
			}
			_ = eachEvent(resp.Body, func(e event) error {
				wait = resumeFirst
				if e.id != "" {
					last = e.id
				}
				if e.retry > 0 {
					wait = min(e.retry, resumeMost)
				}
				if e.data != nil {
					c.pass(e.data, nil)
				}
				return nil
			})
			resp.Body.Close()
		}
	}()
}

// httpStatus is in the data of an error that stands for an answer of HTTP's: the
// client may need the challenge to log in.
type httpStatus struct {
	Status    int    `json:"http_status"`
	Challenge string `json:"www_authenticate,omitempty"`
}

// fail answers a request that the server did not answer.
func (c *remote) fail(m *message, why string, resp *http.Response) {
	if c.ctx.Err() != nil {
		why = "the gateway is closing"
	}
	if m.ID == nil { // a batch: who asked what is not known here
		c.warn("the MCP server did not answer a batch: " + why)
		return
	}
	var data []byte
	if resp != nil {
		data, _ = json.Marshal(httpStatus{resp.StatusCode, resp.Header.Get("WWW-Authenticate")})
	}
	c.pass(errorResponse(m.ID, codeInternal, "assay-run: no answer from the MCP server: "+why, data), m)
}

// plain is an error of a request without the URL, which may have secrets in it.
func plain(err error) error {
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
