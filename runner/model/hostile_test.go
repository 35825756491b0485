package model

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// raw opens a connection and sends text.
func (g *gate) raw(text string) net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.Address())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// status returns the status of the answer on a connection.
func (g *gate) status(c net.Conn) int {
	g.t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

func head(path, token string, more ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + token + "\r\n" +
		strings.Join(more, "\r\n") + "\r\n\r\n"
}

// TestBodiesOfStrangersAreNotKept sends much data without the token.
func TestBodiesOfStrangersAreNotKept(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") })
	const half = 4 << 20
	c := g.raw(head("/anthropic/v1/messages", "other", fmt.Sprint("Content-Length: ", 2*half), "Connection: close"))
	if _, err := c.Write(make([]byte, half)); err != nil { // most of it was read when it has been written
		t.Fatal(err)
	}
	if left := g.memory.left.Load(); left != maxMemory {
		t.Errorf("%d bytes are held", maxMemory-left)
	}
	if _, err := c.Write(make([]byte, half)); err != nil {
		t.Fatal(err)
	}
	if status := g.status(c); status != http.StatusUnauthorized {
		t.Errorf("it is answered with %d", status)
	}
	if e := g.one(); e.Request.Bytes != 2*half || e.Request.Body != nil || str(e.Refused) != "credential" {
		t.Errorf("the line is %+v", e)
	}
}

// TestManyLargeRequestsDoNotFillTheMemory holds requests back until all have arrived except for their ends.
func TestManyLargeRequestsDoNotFillTheMemory(t *testing.T) {
	const n, size = 24, 2 << 20
	var mu sync.Mutex
	got := map[byte]int{}
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got[body[0]] += bytes.Count(body, body[:1])
		mu.Unlock()
		tell(w, "{}")
	})
	var conns []net.Conn
	for i := range n {
		c := g.raw(head("/anthropic/v1/messages", g.Token(), fmt.Sprint("Content-Length: ", size), "Connection: close"))
		if _, err := c.Write(bytes.Repeat([]byte{byte('a' + i)}, size-1)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for i, c := range conns {
		if _, err := c.Write([]byte{byte('a' + i)}); err != nil {
			t.Fatal(err)
		}
		if status := g.status(c); status != http.StatusOK {
			t.Errorf("request %d is answered with %d", i, status)
		}
	}
	want := map[byte]int{}
	for i := range n {
		want[byte('a'+i)] = size
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what the provider got (-want +got):\n%s", d)
	}
	for _, e := range g.close() {
		if e.Request.Bytes != size || e.Request.SHA256 == nil {
			t.Errorf("the line has %+v", e.Request)
		}
	}
	if m, f := g.memory.left.Load(), g.memory.file.Load(); m != maxMemory || f != maxFiles {
		t.Errorf("%d bytes in memory and %d in files are still held", maxMemory-m, maxFiles-f)
	}
}

// TestHugeRequestsShareTheirMemory: bodies beyond what is recorded are decoded one after the other, in one piece of
// memory, and none is made that may not be held.
func TestHugeRequestsShareTheirMemory(t *testing.T) {
	layertest.Host(t)
	const n, size = 12, maxBody + 1<<20
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		tell(w, "{}")
	})
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var asked sync.WaitGroup
	for range n {
		asked.Go(func() {
			c := g.raw(head("/anthropic/v1/messages", g.Token(), fmt.Sprint("Content-Length: ", len(body)),
				"Connection: close"))
			if _, err := c.Write(body); err != nil {
				t.Error(err)
			}
			if status := g.status(c); status != http.StatusOK {
				t.Errorf("a request is answered with %d", status)
			}
		})
	}
	asked.Wait()
	for _, e := range g.close() {
		if e.Request.Bytes != int64(len(body)) || !e.Request.LeftOut || str(e.RequestModel) != "m" {
			t.Errorf("the line has %+v", e.Request)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > n/2*size {
		t.Errorf("%d MiB were allocated for %d requests of %d MiB", got>>20, n, size>>20)
	}
}

// TestWhatIsTooMuchToKeep passes on a request that cannot be kept, refuses one that must be read, and reports both.
func TestWhatIsTooMuchToKeep(t *testing.T) {
	for _, tt := range []struct {
		path   string
		status int
	}{{"/anthropic/v1/messages", 200}, {"/openai/v1/responses", http.StatusServiceUnavailable}} {
		g := newGate(t, streams("{}"))
		g.memory.left.Store(10)
		g.memory.file.Store(10)
		body := `{"model":"` + strings.Repeat("x", 100) + `"}`
		res, _ := g.ask(g.request("POST", tt.path, body))
		if e := g.one(); res.StatusCode != tt.status || e.Request.Bytes != int64(len(body)) || e.Request.Body != nil {
			t.Errorf("%s is answered with %d, and the line has %+v", tt.path, res.StatusCode, e.Request)
		}
		h := schema.ObservationHealth{Layers: map[string]schema.LayerCounts{}}
		g.record.Health(&h)
		if h.ModelLayer != schema.Partial || h.Reasons[0].Code != reasonLost {
			t.Errorf("the layer is %s: %+v", h.ModelLayer, h.Reasons)
		}
	}
}

// TestRequestComesPieceByPiece sends the second half of a request after the provider got the first. If its body
// decides, nothing reaches the provider before it is complete.
func TestRequestComesPieceByPiece(t *testing.T) {
	for name, length := range map[string]string{
		"a length": "Content-Length: 4", "chunks": "Transfer-Encoding: chunked",
	} {
		t.Run(name, func(t *testing.T) {
			half := make(chan string)
			g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
				b := make([]byte, 2)
				_, _ = io.ReadFull(r.Body, b)
				half <- string(b)
				rest, _ := io.ReadAll(r.Body)
				half <- string(rest)
				tell(w, "{}")
			})
			parts := []string{"{ ", " }"}
			if name == "chunks" {
				parts = []string{"2\r\n{ \r\n", "2\r\n }\r\n0\r\n\r\n"}
			}
			c := g.raw(head("/anthropic/v1/messages", g.Token(), length, "Connection: close") + parts[0])
			if got := <-half; got != "{ " {
				t.Errorf("the provider has %q", got)
			}
			if _, err := io.WriteString(c, parts[1]); err != nil {
				t.Fatal(err)
			}
			if got := <-half; got != " }" {
				t.Errorf("the provider has %q", got)
			}
			if status := g.status(c); status != http.StatusOK {
				t.Errorf("it is answered with %d", status)
			}
			if e := g.one(); string(e.Request.Body) != "{}" || e.Request.Bytes != 4 || e.ErrorType != nil {
				t.Errorf("the line is %+v", e)
			}
		})
	}
}

// TestRequestWithoutABody checks that the connection is kept.
func TestRequestWithoutABody(t *testing.T) {
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) { tell(w, "{}") })
	for _, method := range []string{"GET", "POST"} {
		path := map[string]string{"GET": "/anthropic/v1/models", "POST": "/anthropic/v1/messages"}[method]
		if res, _ := g.ask(g.request(method, path, "")); res.StatusCode != http.StatusOK || res.Close {
			t.Errorf("%s is answered with %d, and the connection ends: %v", method, res.StatusCode, res.Close)
		}
	}
}

// TestAnswerBeforeTheEndOfTheRequest has a provider that refuses a request before it has read it.
func TestAnswerBeforeTheEndOfTheRequest(t *testing.T) {
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		tell(w, `{"error":{"type":"request_too_large"}}`)
	})
	c := g.raw(head("/anthropic/v1/messages", g.Token(), "Content-Length: 1000000") + "{")
	if status := g.status(c); status != http.StatusRequestEntityTooLarge {
		t.Errorf("it is answered with %d", status)
	}
	c.Close()
	if e := g.one(); e.Status == nil || *e.Status != 413 || str(e.ErrorType) != "request_too_large" {
		t.Errorf("the line is %+v", e)
	}
}

// TestAgentLeavesBeforeTheEndOfItsRequest breaks off a request.
func TestAgentLeavesBeforeTheEndOfItsRequest(t *testing.T) {
	ended := make(chan error)
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		ended <- err
	})
	c := g.raw(head("/anthropic/v1/messages", g.Token(), "Content-Length: 100") + "{}")
	c.Close()
	if err := <-ended; err == nil {
		t.Error("the provider got a whole request")
	}
	if e := g.one(); str(e.Refused) != "request" || e.Request.Bytes != 2 {
		t.Errorf("the line is %+v", e)
	}
}

// TestBodiesThatMayAskForBackground has bodies that another reader may understand differently.
func TestBodiesThatMayAskForBackground(t *testing.T) {
	for body, refused := range map[string]string{
		`{"model":"m"}`: "", `{"model":"m","background":false}`: "", `{"input":"\ud83d"}`: "", "{\"input\":\"\xff\"}": "",
		`{"background":true}`: "background", `{"background":true,"background":false}`: "request",
		`{"background":"true"}`: "background", `{"background":true,"stream":"x"}`: "background",
		`{"stream":"x"}`: "", `[{"background":true}]`: "request",
		"\ufeff" + `{"background":true}`: "request", `background=true`: "request", ``: "request", `{"background":true}{}`: "request",
	} {
		g := newGate(t, streams("{}"))
		res, _ := g.ask(g.request("POST", "/openai/v1/responses", body))
		if e := g.one(); str(e.Refused) != refused || (res.StatusCode == 200) != (refused == "") {
			t.Errorf("%q is answered with %d, and refused is %q, want %q", body, res.StatusCode, str(e.Refused),
				refused)
		}
	}
}

// TestNoOtherProtocol asks for an upgrade.
func TestNoOtherProtocol(t *testing.T) {
	var got http.Header
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	for _, tt := range []struct {
		upgrade string
		status  int
	}{{"h2c", 200}, {"foo", 200}, {"foo, WebSocket", 426}, {"\u00e9", 200}} {
		got = nil
		r := g.request("GET", "/openai/v1/models", "")
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", tt.upgrade)
		if res, _ := g.ask(r); res.StatusCode != tt.status || got.Get("Upgrade") != "" || got.Get("Connection") != "" {
			t.Errorf("%s is answered with %d, and the provider got %v", tt.upgrade, res.StatusCode, got)
		}
	}
	c := g.raw("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if status := g.status(c); status != http.StatusUnauthorized {
		t.Errorf("OPTIONS * is answered with %d", status)
	}
}

// TestLargeHeaderIsRefused sends a larger header than providers accept.
func TestLargeHeaderIsRefused(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") })
	c := g.raw(head("/anthropic/v1/messages", g.Token(), "X-Big: "+strings.Repeat("x", 2*maxHeader)))
	if status := g.status(c); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("it is answered with %d", status)
	}
	if e := g.one(); str(e.Refused) != "request" {
		t.Errorf("the line is %+v", e)
	}
}

// TestSmuggledRequestIsNone sends requests whose ends are ambiguous.
func TestSmuggledRequestIsNone(t *testing.T) {
	const inner = "POST /anthropic/v1/files HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, text := range map[string]string{
		"a length and chunks": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
			"0\r\n\r\n" + inner,
		"two lengths":       "Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}" + inner,
		"an unknown coding": "Transfer-Encoding: xchunked\r\n\r\n" + inner,
		"a space":           "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}" + inner,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.URL.Path != "/up/v1/messages" || bytes.Contains(body, []byte("POST")) {
					t.Errorf("the provider got %s %q", r.URL, body)
				}
				tell(w, "{}")
			})
			c := g.raw("POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + g.Token() + "\r\n" + text)
			_, _ = io.Copy(io.Discard, c)
			for _, e := range g.close() {
				if e.Status != nil && *e.Status == 200 && e.Request.Bytes > 2 {
					t.Errorf("the line is %+v", e)
				}
			}
		})
	}
}

// TestConnectionsWait opens more connections than allowed.
func TestConnectionsWait(t *testing.T) {
	g := newGateWith(t, streams("{}"), RecorderConfig{}, key, func(c *Config) { c.Connections = 2 })
	idle := []net.Conn{g.raw(""), g.raw("")}
	c := g.raw(head("/anthropic/v1/messages", g.Token(), "Content-Length: 2", "Connection: close") + "{}")
	for _, other := range idle {
		other.Close()
	}
	if status := g.status(c); status != http.StatusOK {
		t.Errorf("it is answered with %d", status)
	}
	for range 4 { // which wait when the gateway ends
		g.raw("")
	}
	g.close()
}

// TestLinesAreBounded has long lines, and then too many.
func TestLinesAreBounded(t *testing.T) {
	g := newGate(t, streams(stream))
	result := `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}`
	g.record.lines = maxLines - 100
	g.ask(g.request("POST", "/anthropic/v1/messages", result))
	g.record.mu.Lock()
	g.record.taken = maxTaken
	g.record.mu.Unlock()
	if res, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{}`)); res.StatusCode != 400 ||
		!strings.Contains(body, "more than is recorded") {
		t.Errorf("it is answered with %d %s", res.StatusCode, body)
	}
	if e := g.one(); !e.Request.LeftOut || len(e.ToolCalls)+len(e.ToolResults)+len(e.FinishReasons) > 0 ||
		*e.Usage.InputTokens != 23 {
		t.Errorf("the line is %+v", e)
	}
	h := schema.ObservationHealth{Layers: map[string]schema.LayerCounts{}}
	g.record.Health(&h)
	var codes []string
	for _, r := range h.Reasons {
		codes = append(codes, r.Code)
	}
	if d := cmp.Diff([]string{reasonLeftOut, reasonMany}, codes); d != "" || h.ModelLayer != schema.Partial {
		t.Errorf("the layer is %s (-want +got):\n%s", h.ModelLayer, d)
	}
}
