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

// maxHeader bounds the headers of an answer, in bytes.
const maxHeader = 256 << 10

// Remote is an MCP server that speaks Streamable HTTP.
type Remote struct {
	URL    string
	Header http.Header // sent with each request
	// Forward, if set, returns the client's own headers to send with a request.
	Forward func() http.Header
	Warn    func(message string)
}

// Start returns a connection. It sends nothing until the first message is written.
func (r Remote) Start() (*Server, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxHeader
	c := &remote{Remote: r, client: &http.Client{Transport: transport, CheckRedirect: sameHost}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	out, w := io.Pipe()
	c.out = w
	return &Server{In: c, Out: out, Accepted: func(f func(jsontext.Value)) { c.accepted = f }, Signal: func(s syscall.Signal) {
		if s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP {
			c.end()
		}
	}, Close: c.end}, nil
}

// sameHost follows a redirect only to the same scheme and host, so that what a client
// sends to a server, its login included, reaches no other server.
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
	work     sync.WaitGroup // requests that have no answer yet
	once     sync.Once

	writing sync.Mutex
	out     *io.PipeWriter

	mu       sync.Mutex
	session  string
	version  string
	standing context.CancelFunc // of the stream for the server's own messages
}

// Write sends one message. It ends in a newline.
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

// asked is a request or a batch. A batch has no id of its own.
type asked struct {
	*jsonrpc.Message
	ids []jsontext.Value // of the requests in it that have no answer yet
}

// answered reports whether this message of the server answers the last open request.
func (a *asked) answered(text []byte) bool {
	list, _, _ := jsonrpc.Split(text)
	for _, one := range list {
		if m, err := jsonrpc.Decode(one); err == nil && m.Method == "" && m.ID != nil {
			a.ids = slices.DeleteFunc(a.ids, func(id jsontext.Value) bool { return jsonrpc.IDText(id) == jsonrpc.IDText(m.ID) })
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
		c.fail(m, plain(err).Error(), nil)
		return
	}
	defer resp.Body.Close()
	if m.Method == "initialize" {
		c.mu.Lock()
		c.session = resp.Header.Get(headerSession)
		c.mu.Unlock()
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
		text, err := io.ReadAll(io.LimitReader(resp.Body, MaxLine+1))
		if err != nil || len(text) > MaxLine {
			c.fail(m, "its answer is too large or broke off", nil)
			return
		}
		if resp.StatusCode != http.StatusOK && !m.answered(bytes.TrimSpace(text)) {
			c.fail(m, "it answered "+resp.Status, resp)
			return
		}
		c.pass(text, m)
	case len(m.ids) == 0 && resp.StatusCode/100 == 2: // a batch without a request
	default:
		c.fail(m, "it answered "+resp.Status, resp)
	}
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

// initialized remembers the protocol version that the two sides agreed on.
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

// httpStatus is the data of an error that stands for an HTTP status. The client may need
// it to log in.
type httpStatus struct {
	Status    int    `json:"http_status"`
	Challenge string `json:"www_authenticate,omitempty"`
}

// fail answers a request with an error, because the server did not answer it.
func (c *remote) fail(m *asked, why string, resp *http.Response) {
	if c.ctx.Err() != nil {
		why = "the gateway is closing"
	}
	var data []byte
	if resp != nil {
		data, _ = json.Marshal(httpStatus{resp.StatusCode, resp.Header.Get("WWW-Authenticate")})
	}
	if len(m.ids) == 0 {
		c.warn("the MCP server refused a batch from the client: " + why)
	}
	for _, id := range m.ids {
		c.pass(errorResponse(id, jsonrpc.CodeInternal, "assay-run: no answer from the MCP server: "+why, data), nil)
	}
}

// plain returns an error of a request without its URL, which can contain secrets.
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
