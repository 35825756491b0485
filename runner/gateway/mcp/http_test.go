package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// server is a server of the official SDK. Its tool slow reports its progress, and continues when it is told to.
func server(steps chan struct{}) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	say := func(text string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
	}
	for _, name := range []string{"echo", "shell"} {
		sdk.AddTool(s, &sdk.Tool{Name: name},
			func(_ context.Context, _ *sdk.CallToolRequest, p in) (*sdk.CallToolResult, any, error) {
				return say(name + " " + p.Text), nil, nil
			})
	}
	sdk.AddTool(s, &sdk.Tool{Name: "slow"},
		func(ctx context.Context, r *sdk.CallToolRequest, _ in) (*sdk.CallToolResult, any, error) {
			for i := range 3 {
				r.Session.NotifyProgress(ctx,
					&sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(),
						Progress: float64(i + 1)})
				<-steps
			}
			return say("slow is done"), nil, nil
		})
	sdk.AddTool(s, &sdk.Tool{Name: "ask"},
		func(ctx context.Context, r *sdk.CallToolRequest, _ in) (*sdk.CallToolResult, any, error) {
			//lint:ignore SA1019 clients of earlier versions still have roots
			roots, err := r.Session.ListRoots(ctx, nil)
			if err != nil {
				return nil, nil, err
			}
			return say(roots.Roots[0].URI), nil, nil
		})
	s.AddResource(&sdk.Resource{Name: "r", URI: "test://r"},
		func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "test://r", Text: "a resource"}}},
				nil
		})
	return s
}

// cutter is a listener whose connections can all be broken at once.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func (c *cutter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns[conn] = true
	}
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
	clear(c.conns)
}

func serveHTTP(t *testing.T, h http.Handler) (url string, c *cutter) {
	return serveBy(t, &http.Server{Handler: h})
}

func serveBy(t *testing.T, server *http.Server) (url string, c *cutter) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config = server
	c = &cutter{Listener: s.Listener, conns: map[net.Conn]bool{}}
	s.Listener = c
	s.Start()
	t.Cleanup(func() { c.cut(); s.CloseClientConnections(); s.Close() })
	return s.URL, c
}

// overHTTP is the SDK's server behind its own Streamable HTTP.
func overHTTP(t *testing.T, steps chan struct{}, check func(http.Handler) http.Handler) (url string, c *cutter) {
	var h http.Handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server(steps) },
		&sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)})
	if check != nil {
		h = check(h)
	}
	return serveHTTP(t, h)
}

// overPipes starts the SDK's server as a program would be.
func overPipes(t *testing.T, steps chan struct{}) *Server {
	in, inW := io.Pipe()
	out, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		server(steps).Run(ctx, &sdk.IOTransport{Reader: in, Writer: outW})
		outW.Close()
	}()
	end := func() error { cancel(); inW.Close(); outW.Close(); return nil }
	t.Cleanup(func() { end() })
	return &Server{In: inW, Out: out, Signal: func(syscall.Signal) {}, Close: end}
}

// front serves a backend and returns its address.
func front(t *testing.T, f *Front, cfg Config, start func(func() http.Header) (*Server, error)) (url string,
	c *cutter) {
	f.Loopback, f.Servers = true, map[string]Backend{"/mcp": {Proxy: cfg, Start: start}}
	url, c = serveBy(t, f.HTTPServer())
	t.Cleanup(f.Close)
	return url + "/mcp", c
}

// TestOfficialSDK drives each way from a client to a server with the official SDK
// on both sides, with a denial, a request of the server, and a stream that breaks
// off in the middle of an answer.
func TestOfficialSDK(t *testing.T) {
	type way struct {
		transport sdk.Transport
		cut       func()
	}
	policy := "tools: {deny: [shell]}"
	for name, build := range map[string]func(t *testing.T, steps chan struct{}) way{
		"stdio to HTTP": func(t *testing.T, steps chan struct{}) way {
			url, c := overHTTP(t, steps, nil)
			remote, err := Remote{URL: url}.Start()
			if err != nil {
				t.Fatal(err)
			}
			in, inW := io.Pipe()
			out, outW := io.Pipe()
			go func() {
				New(Config{Rules: rules(t, policy)}).Relay(in, outW, remote)
				remote.Close()
				outW.Close()
			}()
			return way{&sdk.IOTransport{Reader: out, Writer: inW}, c.cut}
		},
		"HTTP to stdio": func(t *testing.T, steps chan struct{}) way {
			url, c := front(t, &Front{}, Config{Rules: rules(t, policy)}, func(func() http.Header) (*Server, error) {
				return overPipes(t, steps), nil
			})
			return way{&sdk.StreamableClientTransport{Endpoint: url}, c.cut}
		},
		"HTTP to HTTP": func(t *testing.T, steps chan struct{}) way {
			upstream, _ := overHTTP(t, steps, nil)
			url, c := front(t, &Front{}, Config{Rules: rules(t, policy)},
				func(forward func() http.Header) (*Server, error) {
					return Remote{URL: upstream, Forward: forward}.Start()
				})
			return way{&sdk.StreamableClientTransport{Endpoint: url}, c.cut}
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps := make(chan struct{})
			w := build(t, steps)
			progress := make(chan float64, 10)
			client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
					progress <- r.Params.Progress
				},
			})
			//lint:ignore SA1019 servers of earlier versions still ask for them
			client.AddRoots(&sdk.Root{URI: "file:///work"})
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			c, err := client.Connect(ctx, w.transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			tools, err := c.ListTools(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range tools.Tools {
				names = append(names, tool.Name)
			}
			if got := strings.Join(names, " "); got != "ask echo slow" {
				t.Errorf("the tools are %s", got)
			}
			call := func(tool string) string {
				params := &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"text": "hi"}}
				if tool == "slow" {
					params.SetProgressToken("p")
				}
				res, err := c.CallTool(ctx, params)
				if err != nil {
					return "error " + err.Error()
				}
				return res.Content[0].(*sdk.TextContent).Text
			}
			if got := call("echo"); got != "echo hi" {
				t.Errorf("echo: %s", got)
			}
			if got := call("shell"); !strings.Contains(got, `denied by policy rule "tools.deny"`) {
				t.Errorf("shell: %s", got)
			}
			if got := call("ask"); got != "file:///work" {
				t.Errorf("the server asked for roots and got %s", got)
			}
			if res, err := c.ReadResource(ctx, &sdk.ReadResourceParams{URI: "test://r"}); err != nil ||
				res.Contents[0].Text != "a resource" {
				t.Errorf("the resource: %v", err)
			}
			done := make(chan string)
			go func() { done <- call("slow") }()
			<-progress
			if got := call("shell"); !strings.Contains(got, "tools.deny") { // in the middle of the stream
				t.Errorf("shell beside a stream: %s", got)
			}
			w.cut() // it is resumed from the first event
			for range 3 {
				steps <- struct{}{}
			}
			if got := <-done; got != "slow is done" {
				t.Errorf("after the stream broke off: %s", got)
			}
			if first, second := <-progress, <-progress; first+second != 5 {
				t.Errorf("progress %v and %v, want 2 and 3", first, second)
			}
		})
	}
}

// TestLoginPassesThrough: the client gets a remote server's challenge unchanged, and the client's login reaches the
// server and no log.
func TestLoginPassesThrough(t *testing.T) {
	const challenge = `Bearer resource_metadata="https://auth.example/.well-known/oauth-protected-resource"`
	upstream, _ := overHTTP(t, nil, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer s3cret" {
				w.Header().Set("WWW-Authenticate", challenge)
				http.Error(w, "log in", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	var log bytes.Buffer
	var warned []string
	url, _ := front(t, &Front{Token: "ours"},
		Config{Rules: rules(t, "tools: {deny: [shell]}"), Decisions: &log, Warn: func(m string) {
			warned = append(warned, m)
		}},
		func(forward func() http.Header) (*Server, error) {
			return Remote{URL: upstream, Forward: forward}.Start()
		})
	url += "?token=ours"
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	resp := ask(t, url, initialize, nil)
	if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") != challenge {
		t.Fatalf("without a login: %s, %q", resp.Status, resp.Header.Get("WWW-Authenticate"))
	}
	login := http.Header{"Authorization": {"Bearer s3cret"}}
	resp = ask(t, url, initialize, login)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"serverInfo"`) {
		t.Fatalf("with one: %s, %s", resp.Status, body)
	}
	login.Set(headerSession, resp.Header.Get(headerSession))
	resp = ask(t, url, call7, login)
	body, _ = io.ReadAll(resp.Body)
	if !strings.Contains(string(body), `"id":7`) {
		t.Errorf("a call: %s", body)
	}
	if text := log.String() + fmt.Sprint(warned); strings.Contains(text, "s3cret") || log.Len() == 0 {
		t.Errorf("logged: %s", text)
	}
}

func ask(t *testing.T, url, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestAFrontLetsNoStrangerIn refuses pages of other origins, other host names, clients without the token, and unknown
// sessions.
func TestAFrontLetsNoStrangerIn(t *testing.T) {
	steps := make(chan struct{})
	url, _ := front(t, &Front{Token: "ours"}, Config{}, func(func() http.Header) (*Server, error) {
		return overPipes(t, steps), nil
	})
	own := "Bearer ours"
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   int
	}{
		"the token":     {http.Header{"Authorization": {own}}, hello, 200},
		"no token":      {nil, hello, 401},
		"another token": {http.Header{"Authorization": {"Bearer x"}}, hello, 401},
		"a page elsewhere": {http.Header{"Authorization": {own}, "Origin": {"https://evil.example"}}, hello,
			403},
		"a page of this host": {http.Header{"Authorization": {own}, "Origin": {"http://LOCALHOST.:5173"}}, hello,
			200},
		"a name of another's": {http.Header{"Authorization": {own}, "Host": {"evil.example"}}, hello, 403},
		"an unknown session":  {http.Header{"Authorization": {own}, headerSession: {"x"}}, call7, 404},
		"no session":          {http.Header{"Authorization": {own}}, call7, 400},
		"no JSON":             {http.Header{"Authorization": {own}}, "{", 400},
		"an empty batch":      {http.Header{"Authorization": {own}}, "[]", 400},
		"a message with two keys": {http.Header{"Authorization": {own}},
			`{"jsonrpc":"2.0","id":9,"id":9,"method":"initialize"}`, 400},
	} {
		if resp := ask(t, url, c.body, c.header); resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", name, resp.Status, c.want)
		}
	}
}

// hello begins a session.
const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
	`"clientInfo":{"name":"c","version":"1"}}}`

// greet starts a session as a separate client, which is then gone unless it stays.
func greet(t *testing.T, url string, stays bool) (status int, header http.Header) {
	t.Helper()
	own := &http.Transport{}
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := own.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if stays {
		t.Cleanup(own.CloseIdleConnections)
	} else {
		own.CloseIdleConnections()
	}
	return resp.StatusCode, resp.Header
}

// Clients that leave without a message free their places for the next ones.
func TestManyClientsOneAfterTheOtherAreServed(t *testing.T) {
	steps := make(chan struct{})
	times := usualWaits
	times.least = 500 * time.Millisecond
	url, _ := front(t, &Front{waits: times}, Config{}, func(func() http.Header) (*Server, error) {
		return overPipes(t, steps), nil
	})
	for i := range 200 {
		if status, _ := greet(t, url, false); status != http.StatusOK {
			t.Fatalf("client %d: status %d", i+1, status)
		}
	}
}

// A client without a place waits for one, and gets it when another client ends its session. After too long, it is
// told when to try again.
func TestAClientWithoutAPlaceWaits(t *testing.T) {
	steps := make(chan struct{})
	full := func(place time.Duration) (url, last string) {
		times := usualWaits
		times.place = place
		url, _ = front(t, &Front{waits: times}, Config{}, func(func() http.Header) (*Server, error) {
			return overPipes(t, steps), nil
		})
		for i := range maxSessions {
			status, header := greet(t, url, true)
			if status != http.StatusOK {
				t.Fatalf("client %d: status %d", i+1, status)
			}
			last = header.Get(headerSession)
		}
		return url, last
	}
	url, _ := full(time.Millisecond)
	if status, header := greet(t, url, true); status != http.StatusServiceUnavailable ||
		header.Get("Retry-After") != "30" {
		t.Errorf("without a place: status %d, Retry-After %q", status, header.Get("Retry-After"))
	}

	url, last := full(time.Hour)
	served := make(chan int)
	go func() {
		status, _ := greet(t, url, true)
		served <- status
	}()
	select {
	case status := <-served:
		t.Fatalf("client %d did not wait: status %d", maxSessions+1, status)
	case <-time.After(100 * time.Millisecond):
	}
	req, err := http.NewRequest(http.MethodDelete, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(headerSession, last)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if status := <-served; status != http.StatusOK {
		t.Errorf("after another client had ended its session: status %d", status)
	}
}

// A client that is gone frees its server. One that keeps its connection is not gone, however silent it is.
func TestAClientThatIsGoneGivesItsServerBack(t *testing.T) {
	steps := make(chan struct{})
	ended := make(chan string, 10)
	started := 0
	f := &Front{waits: waits{gone: 300 * time.Millisecond}}
	url, _ := front(t, f, Config{}, func(func() http.Header) (*Server, error) {
		s := overPipes(t, steps)
		closing, name := s.Close, fmt.Sprint("server ", started)
		started++
		s.Close = sync.OnceValue(func() error { ended <- name; return closing() })
		return s, nil
	})
	greet(t, url, true)
	greet(t, url, false)
	if name := <-ended; name != "server 1" {
		t.Errorf("%s ended first, want server 1: its client is gone", name)
	}
	select {
	case name := <-ended:
		t.Errorf("%s ended, although its client is there", name)
	case <-time.After(900 * time.Millisecond):
	}
}
