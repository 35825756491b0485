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

// noteTimeout is how long the server may take to accept a message that needs no
// answer.
const noteTimeout = 30 * time.Second

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
	return err == nil && a.Method == "" && m.ID != nil && a.ID != nil && idText(a.ID) == idText(m.ID)
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
