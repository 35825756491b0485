package model

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/assay-run/assay-run/runner/gateway/recording/recordingtest"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/modelfile"
	"github.com/assay-run/assay-run/schema/redact"
)

const key = "sk-test-0123456789abcdef"

// gate is an endpoint in front of a scripted provider.
type gate struct {
	*Endpoint
	t        *testing.T
	record   *Recorder
	rec      *recordingtest.Recorder
	provider *httptest.Server
	client   *http.Client
	once     sync.Once
}

func newGate(t *testing.T, provider http.HandlerFunc) *gate {
	return newGateWith(t, provider, RecorderConfig{}, key)
}

func newGateWith(t *testing.T, provider http.HandlerFunc, cfg RecorderConfig, key string, more ...func(*Config)) *gate {
	t.Helper()
	g := &gate{t: t, rec: recordingtest.New(t.TempDir()), provider: httptest.NewServer(provider),
		client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	secrets := redact.New([]byte("a key for tests"))
	secrets.Add(redact.RuleGiven, key)
	began := time.Now()
	cfg.Log = evidence.New(evidence.Config{RunID: "run_1", Recorder: g.rec, Redactor: secrets, Model: true,
		Clock: func() time.Duration { return time.Since(began) }})
	cfg.Log.Event(schema.Event{Type: schema.RunStarted})
	g.record = NewRecorder(cfg)
	var routes []Route
	for _, name := range modelfile.Routes {
		at, err := modelfile.Upstream(name, g.provider.URL+"/up")
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, Route{Provider: modelfile.Provider{Name: name, Upstream: at, Key: key}})
	}
	c := Config{Routes: routes, Now: cfg.Log.Now, Record: g.record, Dir: t.TempDir()}
	for _, with := range more {
		with(&c)
	}
	var err error
	if g.Endpoint, err = Listen(c); err != nil {
		t.Fatal(err)
	}
	secrets.Add(redact.RuleGiven, g.Token())
	t.Cleanup(func() { g.close() })
	return g
}

// close ends all, and returns what was recorded.
func (g *gate) close() []schema.ModelEvent {
	g.t.Helper()
	g.once.Do(func() {
		g.client.CloseIdleConnections()
		_ = g.Endpoint.Close()
		g.provider.CloseClientConnections()
		g.provider.Close()
		if err := g.record.Close(); err != nil {
			g.t.Error(err)
		}
		g.rec.Close()
	})
	var events []schema.ModelEvent
	for _, line := range g.rec.Lines(g.t, schema.ModelPath) {
		var e schema.ModelEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			g.t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// one is the only event.
func (g *gate) one() schema.ModelEvent {
	g.t.Helper()
	events := g.close()
	if len(events) != 1 {
		g.t.Fatalf("%d events were recorded, want 1", len(events))
	}
	return events[0]
}

// request makes one with the token of the run.
func (g *gate) request(method, path, body string) *http.Request {
	g.t.Helper()
	r, err := http.NewRequest(method, "http://"+g.Address()+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", g.Token())
	return r
}

// ask sends a request, and returns the answer with its body.
func (g *gate) ask(r *http.Request) (*http.Response, string) {
	g.t.Helper()
	res, err := g.client.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatalf("read the answer: %v after %q", err, body)
	}
	return res, string(body)
}

// stream is an answer of Anthropic's that calls a tool.
const stream = `data: {"type":"message_start","message":{"id":"msg_1","model":"claude-x","usage":{"input_tokens":11,` +
	`"cache_read_input_tokens":7,"cache_creation_input_tokens":5}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"command\":\"ls\"}"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

data: {"type":"message_stop"}

`

func streams(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tell(w, body)
	}
}

// tell writes an answer without a length: its end reaches the agent after the recorder has it, so that lines are in
// the order of the requests.
func tell(w http.ResponseWriter, body string) {
	_, _ = io.WriteString(w, body)
	_ = http.NewResponseController(w).Flush()
}

func TestRequestIsPassedOnWithTheKey(t *testing.T) {
	for _, tt := range []struct{ route, path, header, want string }{
		{modelfile.Anthropic, "/anthropic/v1/messages?beta=true", "X-Api-Key", key},
		{modelfile.Anthropic, "/anthropic/messages", "X-Api-Key", key},
		{modelfile.OpenAI, "/openai/v1/responses", "Authorization", "Bearer " + key},
		{modelfile.OpenAI, "/openai/chat/completions", "Authorization", "Bearer " + key},
		{modelfile.Gemini, "/gemini/v1beta/models/gemini-2.5-pro:generateContent", "X-Goog-Api-Key", key},
	} {
		t.Run(tt.path, func(t *testing.T) {
			var got *http.Request
			var body []byte
			g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Clone(context.Background())
				body, _ = io.ReadAll(r.Body)
				w.Header().Set("X-Mine", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"error":{"type":"rate_limit_error","message":"m"}}`)
			})
			r := g.request("POST", tt.path, `{"model":"m"}`)
			r.Header.Set("Anthropic-Version", "2023-06-01")
			r.Header.Set("Accept-Encoding", "gzip, br")
			res, answer := g.ask(r)
			if res.StatusCode != 429 || res.Header.Get("X-Mine") != "1" ||
				!strings.Contains(answer, "rate_limit_error") {
				t.Errorf("the answer is %d %v %s", res.StatusCode, res.Header, answer)
			}
			g.close()
			if string(body) != `{"model":"m"}` || got.Header.Get("Anthropic-Version") != "2023-06-01" {
				t.Errorf("the provider got %v %s", got.Header, body)
			}
			if h := got.Header.Get(tt.header); h != tt.want {
				t.Errorf("%s is %q, want %q", tt.header, h, tt.want)
			}
			for name, values := range got.Header {
				if strings.Contains(strings.Join(values, " "), g.Token()) || strings.HasPrefix(name, "X-Forwarded") {
					t.Errorf("the provider got %s: %v", name, values)
				}
			}
			if e := got.Header.Get("Accept-Encoding"); e != "identity" {
				t.Errorf("Accept-Encoding is %q", e)
			}
			rest := strings.TrimPrefix(strings.TrimPrefix(tt.path, "/"+tt.route), "/v1beta")
			rest = strings.TrimPrefix(rest, "/v1")
			version := map[string]string{modelfile.Anthropic: "/v1", modelfile.OpenAI: "/v1",
				modelfile.Gemini: "/v1beta"}[tt.route]
			if want := "/up" + version + rest; got.URL.String() != want {
				t.Errorf("the provider was asked for %s, want %s", got.URL, want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	asked := 0
	g := newGate(t, func(http.ResponseWriter, *http.Request) { asked++ })
	for _, tt := range []struct {
		name         string
		method, path string
		body         string
		change       func(*http.Request)
		status       int
		refused      string
	}{
		{"no credential", "POST", "/anthropic/v1/messages", "{}",
			func(r *http.Request) { r.Header.Del("X-Api-Key") }, 401, "credential"},
		{"another credential", "POST", "/anthropic/v1/messages", "{}",
			func(r *http.Request) { r.Header.Set("X-Api-Key", "sk-other") }, 401, "credential"},
		{"another credential beside the token", "POST", "/anthropic/v1/messages", "{}",
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer sk-other") }, 401, "credential"},
		{"another credential in the query", "POST", "/gemini/v1beta/models/m:generateContent?key=other", "{}",
			func(r *http.Request) {}, 401, "credential"},
		{"files", "GET", "/anthropic/v1/files", "", nil, 403, "path"},
		{"no route", "POST", "/v1/messages", "{}", nil, 403, "path"},
		{"batches", "POST", "/anthropic/v1/messages/batches", "{}", nil, 403, "path"},
		{"a stored answer", "GET", "/openai/v1/responses/resp_1", "", nil, 403, "path"},
		{"a path with dots", "POST", "/anthropic/v1/messages/../files", "{}", nil, 403, "path"},
		{"a path with escaped slashes", "POST", "/gemini/v1beta/models/..%2Ffiles:generateContent", "{}", nil, 403,
			"path"},
		{"a model's name with dots", "POST", "/gemini/v1beta/models/..:generateContent", "{}", nil, 403, "path"},
		{"another method", "DELETE", "/openai/v1/models/m", "", nil, 403, "path"},
		{"a background request", "POST", "/openai/v1/responses", `{"background":true}`, nil, 403, "background"},
		{"a WebSocket", "GET", "/openai/v1/responses", "",
			func(r *http.Request) {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "websocket")
			}, 426, "websocket"},
	} {
		r := g.request(tt.method, tt.path, tt.body)
		if tt.change != nil {
			tt.change(r)
		}
		res, body := g.ask(r)
		if res.StatusCode != tt.status || !strings.Contains(body, "assay-run: ") {
			t.Errorf("%s: the answer is %d %s, want %d", tt.name, res.StatusCode, body, tt.status)
		}
	}
	var got, want []string
	for _, e := range g.close() {
		got = append(got, str(e.Refused))
	}
	for range 4 {
		want = append(want, "credential")
	}
	for range 8 {
		want = append(want, "path")
	}
	want = append(want, "background", "websocket")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("refusals that were recorded (-want +got):\n%s", d)
	}
	if asked != 0 {
		t.Errorf("the provider was asked %d times", asked)
	}
	if n := g.record.Totals(); n.Requests != uint64(len(want)) || n.Refused != uint64(len(want)) {
		t.Errorf("totals are %+v", n)
	}
}

// TestAbsoluteURL sends the request line of a proxy request.
func TestAbsoluteURL(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") })
	c, err := net.Dial("tcp", g.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST http://example.com/anthropic/v1/messages HTTP/1.1\r\nHost: example.com\r\nX-Api-Key: %s\r\n"+
		"Content-Length: 2\r\nConnection: close\r\n\r\n{}", g.Token())
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusForbidden {
		t.Fatalf("the answer is %v, %v", res, err)
	}
}

func TestStreamComesPieceByPiece(t *testing.T) {
	next := make(chan string)
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for piece := range next {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	})
	var wrote sync.WaitGroup
	pieces := strings.SplitAfter(stream, "\n\n")
	got := make(chan struct{})
	wrote.Go(func() {
		defer close(next)
		for _, p := range pieces {
			next <- p
			if p != "" {
				<-got // before the next one is sent
			}
		}
	})
	res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{"model":"m","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, p := range pieces {
		b := make([]byte, len(p))
		if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != p {
			t.Fatalf("%q, %v; want %q", b, err, p)
		}
		if p != "" {
			got <- struct{}{}
		}
	}
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Fatalf("%q, %v", rest, err)
	}
	wrote.Wait()
	e := g.one()
	if e.Status == nil || *e.Status != 200 || e.Stream == nil || !*e.Stream || e.ErrorType != nil ||
		str(e.ResponseModel) != "claude-x" || str(e.RequestModel) != "m" || str(e.Route) != modelfile.Anthropic ||
		str(e.API) != "messages" || *e.Usage.InputTokens != 23 || *e.Usage.OutputTokens != 9 ||
		e.Usage.ReasoningOutputTokens != nil || len(e.FinishReasons) != 1 || e.Timings.FirstByteNS == nil ||
		e.Response.Bytes != int64(len(stream)) {
		t.Errorf("the line is %+v", e)
	}
	want := []schema.ModelToolCall{{ID: new("toolu_1"), Name: "Bash", Arguments: []byte(`{"command":"ls"}`),
		Complete: true}}
	if d := cmp.Diff(want, e.ToolCalls); d != "" {
		t.Errorf("tool calls (-want +got):\n%s", d)
	}
}

func TestBrokenStreamBreaksForTheAgent(t *testing.T) {
	at := strings.Index(stream, `"partial_json"`)
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream[:at])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err == nil || string(b) != stream[:at] {
		t.Errorf("the agent got %q, %v", b, err)
	}
	e := g.one()
	if str(e.ErrorType) != schema.ModelErrorBroken || *e.Usage.InputTokens != 23 || e.Usage.OutputTokens != nil ||
		len(e.ToolCalls) != 1 || e.ToolCalls[0].Complete {
		t.Errorf("the line is %+v", e)
	}
	if n := g.record.Totals(); n.UsageUnknown != 1 || *n.InputTokens != 23 || n.OutputTokens != nil {
		t.Errorf("totals are %+v", n)
	}
}

func TestAgentLeaves(t *testing.T) {
	ended := make(chan struct{})
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream[:10])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the request to the provider ends
		close(ended)
	})
	ctx, leave := context.WithCancel(context.Background())
	res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{}`).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	leave()
	res.Body.Close()
	<-ended
	if e := g.one(); str(e.ErrorType) != schema.ModelErrorLeft {
		t.Errorf("the error is %q, want %s", str(e.ErrorType), schema.ModelErrorLeft)
	}
}

func TestUnreachableProvider(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) {})
	g.provider.Close()
	res, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{}`))
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "could not reach the provider") {
		t.Errorf("the answer is %d %s", res.StatusCode, body)
	}
	if e := g.one(); str(e.ErrorType) != schema.ModelErrorUnreachable || *e.Status != 502 {
		t.Errorf("the line is %+v", e)
	}
}

// TestProviderThatClosesTheConnection has one that reads the request, and does not answer.
func TestProviderThatClosesTheConnection(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	res, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{}`))
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "got no answer from the provider") {
		t.Errorf("the answer is %d %s", res.StatusCode, body)
	}
	if e := g.one(); str(e.ErrorType) != schema.ModelErrorNoAnswer || *e.Status != 502 {
		t.Errorf("the line is %+v", e)
	}
}

// TestRequestThatCannotBeSent has a request that the proxy refuses before it looks for a connection.
func TestRequestThatCannotBeSent(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") })
	broken := g.proxies[modelfile.Anthropic].Rewrite
	g.proxies[modelfile.Anthropic].Rewrite = func(r *httputil.ProxyRequest) {
		broken(r)
		r.Out.Header.Set("X-Odd", "a\nb")
	}
	res, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{}`))
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "cannot be passed on") {
		t.Errorf("the answer is %d %s", res.StatusCode, body)
	}
	if e := g.one(); str(e.Refused) != schema.ModelRefusedRequest || e.ErrorType != nil {
		t.Errorf("the line is %+v", e)
	}
}

// TestKeyNeverComesBack has a provider that returns its key, in each place and split at each byte.
func TestKeyNeverComesBack(t *testing.T) {
	const before, after = "data: before ", " after\n\n"
	text := before + key + after
	for at := range len(text) {
		g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, text[:at])
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, text[at:])
		})
		res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil || string(b) != before {
			t.Errorf("cut at %d, the agent got %q, %v; want %q and an error", at, b, err, before)
		}
		if e := g.one(); str(e.ErrorType) != schema.ModelErrorKey {
			t.Errorf("the error is %q", str(e.ErrorType))
		}
	}
	for name, tell := range map[string]http.HandlerFunc{
		"a header": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Debug", "key="+key) },
		"an early header": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", key)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		},
		"a trailer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, before)
			w.Header().Set(http.TrailerPrefix+"X-Debug", key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, tell)
			c, err := net.Dial("tcp", g.Address())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r := g.request("POST", "/anthropic/v1/messages", `{}`)
			r.Close = true
			if err := r.Write(c); err != nil {
				t.Fatal(err)
			}
			if all, _ := io.ReadAll(c); bytes.Contains(all, []byte(key)) {
				t.Errorf("the agent got %q", all)
			}
		})
	}
}

// TestPrefixOfKeyIsPassedOn has an answer that ends with a possible start of the key.
func TestPrefixOfKeyIsPassedOn(t *testing.T) {
	text := "data: " + key[:len(key)-1]
	g := newGate(t, streams(text))
	if _, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{}`)); body != text {
		t.Errorf("the agent got %q, want %q", body, text)
	}
}

func TestEncodedAnswerIsPassedOnAndDecodedForTheRecord(t *testing.T) {
	for encoding, encode := range map[string]func(w io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return z
		},
	} {
		t.Run(encoding, func(t *testing.T) {
			var b bytes.Buffer
			z := encode(&b)
			_, _ = io.WriteString(z, stream)
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Content-Encoding", encoding)
				_, _ = w.Write(b.Bytes())
			})
			res, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{}`))
			if body != b.String() || res.Header.Get("Content-Encoding") != encoding {
				t.Errorf("the agent got %q %v", body, res.Header)
			}
			if e := g.one(); *e.Usage.InputTokens != 23 || e.Response.Bytes != int64(b.Len()) {
				t.Errorf("the line is %+v", e)
			}
		})
	}
}

func TestUnknownEncodingMakesTheLayerPartial(t *testing.T) {
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, "?")
	})
	g.ask(g.request("POST", "/anthropic/v1/messages", `{}`))
	if e := g.one(); str(e.ErrorType) != schema.ModelErrorEncoding || e.Usage.InputTokens != nil {
		t.Errorf("the line is %+v", e)
	}
	h := schema.ObservationHealth{Layers: map[string]schema.LayerCounts{}}
	g.record.Health(&h)
	if h.ModelLayer != schema.Partial || len(h.Reasons) != 1 || h.Reasons[0].Code != reasonUndecoded {
		t.Errorf("the layer is %s: %+v", h.ModelLayer, h.Reasons)
	}
}

// TestTextsAreKeptOnce sends a growing conversation in which a cache mark moves.
func TestTextsAreKeptOnce(t *testing.T) {
	g := newGate(t, streams(stream))
	long := strings.Repeat("a long text ", 100)
	message := func(text, cache string) string {
		return `{"role":"user","content":[{"type":"text","text":"` + text + `"` + cache + `}]}`
	}
	const cached = `,"cache_control":{"type":"ephemeral"}`
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"messages":[`+message(long, cached)+`]}`))
	g.ask(g.request("POST", "/anthropic/v1/messages",
		`{"messages":[`+message(long, "")+`,`+message(long+"2", cached)+`]}`))
	events := g.close()
	blobs, err := os.ReadDir(filepath.Join(g.rec.Dir, schema.BlobsDir))
	if err != nil {
		t.Fatal(err)
	}
	if len(blobs) != 3 { // two texts, and the answer
		t.Errorf("%d texts are kept, want 3", len(blobs))
	}
	var body struct {
		Messages []struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(events[1].Request.Body, &body); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{long, long + "2"} {
		b, err := os.ReadFile(filepath.Join(g.rec.Dir, body.Messages[i].Content[0].Text))
		if err != nil || string(b) != want {
			t.Errorf("text %d is %.20q, %v", i, b, err)
		}
	}
}

// TestTextThatLooksLikeAName: such a text is stored as a member, so that it cannot be mistaken for a name.
func TestTextThatLooksLikeAName(t *testing.T) {
	g := newGate(t, streams(stream))
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"system":"blobs/sha256/00"}`))
	var body struct{ System string }
	if err := json.Unmarshal(g.one().Request.Body, &body); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(g.rec.Dir, body.System)); err != nil || string(b) != "blobs/sha256/00" {
		t.Errorf("%q holds %q, %v", body.System, b, err)
	}
}

func TestDigestsAlone(t *testing.T) {
	g := newGateWith(t, streams(stream), RecorderConfig{Digests: true}, key)
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"system":"`+strings.Repeat("x", 1000)+`"}`))
	e := g.one()
	if e.Request.SHA256 == nil || e.Request.Body != nil || e.Response.SHA256 == nil || e.Response.Body != nil ||
		len(e.ToolCalls) != 1 || e.ToolCalls[0].Arguments != nil {
		t.Errorf("the line is %+v", e)
	}
	if _, err := os.Stat(filepath.Join(g.rec.Dir, "blobs")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there are members with texts: %v", err)
	}
}

// TestSecretsAreTakenOut sends the key and the token as text.
func TestSecretsAreTakenOut(t *testing.T) {
	g := newGate(t, streams(strings.Replace(stream, `\"ls\"`, `\"`+"echo assay-run-x"+`\"`, 1)))
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"a":"`+g.Token()+`","b":"`+strings.Repeat("x", 500)+key+`"}`))
	g.close()
	found := 0
	err := filepath.WalkDir(g.rec.Dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		b, err := os.ReadFile(name)
		if bytes.Contains(b, []byte(key)) || bytes.Contains(b, []byte(g.Token())) {
			t.Errorf("a secret is in %s: %s", name, b)
		}
		return err
	})
	if err != nil || found < 3 {
		t.Errorf("%d files, %v", found, err)
	}
}

// TestHostileBodiesDoNotSpoilTheLayer sends bodies that readers of the layer would refuse.
func TestHostileBodiesDoNotSpoilTheLayer(t *testing.T) {
	bodies := []string{
		`{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":1e99999999}`, `{"a":-0}`, `{"a":"\ud800"}`, `[`, `"x"`, "\x00",
		`{"model":5}`,
		`{"model":"` + strings.Repeat("m", 5000) + `"}`, strings.Repeat("[", 20000) + strings.Repeat("]", 20000),
		`{"messages":[` + strings.Repeat(`{"role":"user"},`, 60000) + `{}]}`,
	}
	calls := `{"id":"m","content":[{"type":"tool_use","id":"` + "\xff" +
		`","name":"n","input":{"a":1,"a":2}},{"type":` +
		`"tool_use","id":"2","name":"n","input":{"a":1e99999999}}],"usage":{"input_tokens":1,"x":1e99999999,"y":{"a":1,"a":2}}}`
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, calls)
	})
	for _, b := range bodies {
		g.ask(g.request("POST", "/anthropic/v1/messages", b))
	}
	if n := len(g.close()); n != len(bodies) { // which also checks each line
		t.Errorf("%d lines, want %d", n, len(bodies))
	}
}

func TestRetries(t *testing.T) {
	status := []int{529, 429, 200, 200}
	n := 0
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status[n])
		n++
		tell(w, `{}`)
	})
	for range status {
		g.ask(g.request("POST", "/anthropic/v1/messages", `{"messages":[]}`))
	}
	var got []uint64
	for _, e := range g.close() {
		if e.RetryOf != nil {
			got = append(got, *e.RetryOf)
		}
	}
	if !slices.Equal(got, []uint64{0, 1}) {
		t.Errorf("retries are of %v, want 0 and 1", got)
	}
}

func TestResultsAreListedOnce(t *testing.T) {
	g := newGate(t, streams(stream))
	result := func(id string) string {
		return `{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","is_error":true}]}`
	}
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"messages":[`+result("a")+`]}`))
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"messages":[`+result("a")+`,`+result("b")+`]}`))
	events := g.close()
	want := []schema.ModelToolResult{{ID: new("b"), IsError: new(true)}}
	if d := cmp.Diff(want, events[1].ToolResults); d != "" {
		t.Errorf("results of the second request (-want +got):\n%s", d)
	}
}

// TestManyAtOnce sends requests on many connections, and compares each answer with its request.
func TestManyAtOnce(t *testing.T) {
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":%q,"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}`,
			body)
	})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			body := fmt.Sprintf(`{"n":%d}`, i)
			res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", body))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			var m struct{ ID string }
			if err := json.NewDecoder(res.Body).Decode(&m); err != nil || m.ID != body {
				t.Errorf("%q was answered with %q, %v", body, m.ID, err)
			}
		})
	}
	all.Wait()
	for _, e := range g.close() {
		if str(e.ResponseID) != string(e.Request.Body) {
			t.Errorf("the line of %s has the answer to %s", e.Request.Body, str(e.ResponseID))
		}
	}
	if n := g.record.Totals(); n.Requests != 50 || *n.InputTokens != 50 || n.UsageUnknown != 0 {
		t.Errorf("totals are %+v", n)
	}
}

// TestLongAnswerGoesThroughAFile has an answer that is too large for memory.
func TestLongAnswerGoesThroughAFile(t *testing.T) {
	piece := strings.Repeat("x", 1<<20)
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		for range 40 {
			_, _ = io.WriteString(w, piece)
		}
	})
	if _, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{}`)); len(body) != 40<<20 {
		t.Errorf("the agent got %d bytes", len(body))
	}
	e := g.one()
	if e.Response.Bytes != 40<<20 || e.Response.SHA256 == nil || e.Response.LeftOut {
		t.Errorf("the answer is recorded as %+v", e.Response)
	}
	if left := g.memory.left.Load(); left != maxMemory {
		t.Errorf("%d bytes are still held", maxMemory-left)
	}
}

// TestAgentsOwnLogin checks that the agent's credentials are passed on.
func TestAgentsOwnLogin(t *testing.T) {
	var got string
	g := newGateWith(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") },
		RecorderConfig{}, "")
	r := g.request("POST", "/anthropic/v1/messages", `{}`)
	r.Header.Set("Authorization", "Bearer oat-1")
	r.Header.Del("X-Api-Key")
	g.ask(r)
	g.close()
	if got != "Bearer oat-1" {
		t.Errorf("the provider got %q", got)
	}
}

func TestWhoAsked(t *testing.T) {
	g := newGate(t, streams(stream))
	g.record.Observed()
	from := make(chan string, 1)
	g.client.Transport = &http.Transport{DialContext: func(ctx context.Context, n, a string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, n, a)
		if err == nil {
			from <- c.LocalAddr().String()
		}
		return c, err
	}}
	g.ask(g.request("POST", "/anthropic/v1/messages", `{}`))
	g.record.Connected(<-from, 7) // later than the answer
	if e := g.one(); e.ExecID == nil || *e.ExecID != 7 {
		t.Errorf("exec_id is %v, want 7", e.ExecID)
	}
}

func TestEnviron(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) {})
	got := g.Environ([]string{"PATH=/bin", "ANTHROPIC_API_KEY=" + key, "MY_COPY=" + key, "ANTHROPIC_AUTH_TOKEN=other",
		"ANTHROPIC_CUSTOM_HEADERS=x-api-key: " + key, `CONFIG={"key":"` + key + `"}`,
		"GOOGLE_API_KEY=other", "NO_PROXY=localhost", "OPENAI_BASE_URL=http://elsewhere"}, true)
	at := "http://" + g.Address()
	want := []string{"PATH=/bin",
		"ANTHROPIC_BASE_URL=" + at + "/anthropic", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"ANTHROPIC_API_KEY=" + g.Token(),
		"OPENAI_BASE_URL=" + at + "/openai/v1", "OPENAI_API_KEY=" + g.Token(), "CODEX_API_KEY=" + g.Token(),
		"GOOGLE_GEMINI_BASE_URL=" + at + "/gemini", "GEMINI_API_KEY=" + g.Token(),
		"NO_PROXY=localhost,127.0.0.1", "no_proxy=127.0.0.1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	for was, want := range map[string]string{
		"*": "*", "": "127.0.0.1", "127.0.0.1": "127.0.0.1", "a b": "a b,127.0.0.1",
	} {
		if got := g.Environ([]string{"no_proxy=" + was}, true); !slices.Contains(got, "no_proxy="+want) {
			t.Errorf("no_proxy=%s becomes %v, want %s", was, got, want)
		}
	}
}

// TestProviderToolsAreRefused declares tools that the provider runs, by each API.
func TestProviderToolsAreRefused(t *testing.T) {
	const anthropic, responses, chat = "/anthropic/v1/messages", "/openai/v1/responses", "/openai/v1/chat/completions"
	const gemini = "/gemini/v1beta/models/m:generateContent"
	const count, countGemini = "/anthropic/v1/messages/count_tokens", "/gemini/v1beta/models/m:countTokens"
	const embed = "/gemini/v1beta/models/m:batchEmbedContents"
	says := func(part string) string { return `{"messages":[{"role":"user","content":[` + part + `]}]}` }
	input := func(part string) string { return `{"input":[{"role":"user","content":[` + part + `]}]}` }
	part := func(part string) string { return `{"contents":[{"role":"user","parts":[` + part + `]}]}` }
	for _, tt := range []struct{ path, body, says string }{
		{anthropic, `{"tools":[{"name":"Bash","input_schema":{}},{"type":"bash_20250124","name":"bash"}]}`, ""},
		{anthropic, `{"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, `declares \"web_search\"`},
		{anthropic, `{"tools":[{"type":"code_execution_20250522","name":"code_execution"}]}`, `\"code_execution\"`},
		{anthropic, `{"mcp_servers":[{"type":"url","name":"remote","url":"https://x"}]}`, `\"remote\"`},
		{responses, `{"tools":[{"type":"function","name":"shell"},{"type":"custom","name":"apply_patch"}]}`, ""},
		{responses, `{"tools":[{"type":"web_search"}]}`, `\"web_search\"`},
		{responses, `{"tools":[{"type":"mcp","server_label":"remote","server_url":"https://x"}]}`, `\"remote\"`},
		{responses, `{"tools":[{"type":"code_interpreter","container":{}}]}`, `\"code_interpreter\"`},
		{responses, `{"prompt":{"id":"pmpt_1"}}`, `has \"prompt\"`},
		{responses, `{"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}`, ""},
		{responses, `{"tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`, `\"web_search\"`},
		{responses, `{"tools":[{"type":"web_search","name":5}]}`, "unknown form"},
		{anthropic, `{"tools":[{"type":"web_search_20250305","name":5}]}`, "unknown form"},
		{chat, `{"tools":[{"type":"web_search","name":5}]}`, "unknown form"},
		{chat, `{"tools":[{"type":"function","function":{"name":"shell"}}]}`, ""},
		{chat, `{"web_search_options":{}}`, `\"web_search\"`},
		{gemini, `{"tools":[{"functionDeclarations":[{"name":"shell"}]}]}`, ""},
		{gemini, `{"tools":[{"functionDeclarations":[{"name":"shell"}],"googleSearch":{}}]}`, `\"googleSearch\"`},
		{gemini, `{"tools":[{"code_execution":{}}]}`, `\"code_execution\"`},
		{gemini, `{"cachedContent":"cachedContents/1"}`, `has \"cachedContent\"`},
		{gemini, `{"tools":{"googleSearch":{}}}`, "unknown form"},
		{anthropic, `{"tools":[{"type":"web_search_20250305","name":"s"}],"tools":[]}`, "cannot be read"},
		{anthropic, `{`, "cannot be read"},
		// asks none
		{count, `{"tools":[{"type":"web_search_20250305","name":"s"}]}`, ""},
		// media by URL, and what is stored
		{anthropic, says(`{"type":"image","source":{"type":"url","url":"https://Evil.example/x?secret"}}`),
			`\"image\" by URL, which the provider would load from evil.example: send`},
		{anthropic, says(`{"type":"document","source":{"type":"url","url":"https://evil.example/x.pdf"}}`),
			`\"document\" by URL`},
		{anthropic, says(`{"type":"document","source":{"type":"file","file_id":"file_1"}}`),
			`\"document\", which stands for`},
		{anthropic, says(`{"type":"container_upload","file_id":"file_1"}`), `\"container_upload\"`},
		{anthropic, says(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url",` +
			`"url":"https://evil.example/x"}}]}`), "evil.example"},
		{anthropic,
			says(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url",` +
				`"url":"https://evil.example/x"}}]}}`), "evil.example"},
		{anthropic, `{"system":[{"type":"image","source":{"type":"url","url":"https://evil.example/x"}}]}`,
			"evil.example"},
		{anthropic, says(`{"type":"image","source":{"type":"hologram"}}`), "does not know"},
		{anthropic, says(`{"type":"hologram"}`), `the kind \"hologram\"`},
		{anthropic, `{"container":"container_1"}`, `\"container\"`},
		{count, says(`{"type":"image","source":{"type":"url","url":"https://evil.example/x"}}`), "evil.example"},
		{chat, says(`{"type":"image_url","image_url":{"url":"https://evil.example/x"}}`), "evil.example"},
		{chat, says(`{"type":"image_url","image_url":"https://evil.example/x"}`), "evil.example"},
		{chat, says(`{"type":"image_url","image_url":{"url":["https://evil.example/x"]}}`), `\"image_url\" by URL`},
		{chat, says(`{"type":"file","file":{"file_id":"file_1"}}`), `\"file_id\"`},
		{chat, says(`{"type":"video_url","video_url":{"url":"https://evil.example/x"}}`), `the kind \"video_url\"`},
		{chat, `{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, `\"audio\"`},
		{responses, input(`{"type":"input_image","image_url":"https://evil.example/x"}`), "evil.example"},
		{responses, input(`{"type":"input_image","file_id":"file_1"}`), `\"file_id\"`},
		{responses, input(`{"type":"input_file","file_url":"https://evil.example/x"}`), "evil.example"},
		{responses, `{"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image",` +
			`"image_url":"https://evil.example/x"}]}]}`, "evil.example"},
		{responses, `{"input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot",` +
			`"image_url":"https://evil.example/x"}}]}`, "evil.example"},
		{responses, `{"input":[{"type":"item_reference","id":"msg_1"}]}`, `\"item_reference\"`},
		{responses, `{"previous_response_id":"resp_1","input":"x"}`, `\"previous_response_id\"`},
		{responses, `{"conversation":"conv_1","input":"x"}`, `\"conversation\"`},
		{responses, `{"input":[{"type":"hologram"}]}`, `the kind \"hologram\"`},
		{gemini, part(`{"fileData":{"fileUri":"https://evil.example/x"}}`), "evil.example"},
		{gemini, part(`{"file_data":{"file_uri":"https://evil.example/x"}}`), "evil.example"},
		{gemini, part(`{"fileData":{"fileUri":"https://generativelanguage.googleapis.com/v1beta/files/f"}}`),
			"has stored"},
		{gemini, part(`{"functionResponse":{"name":"f","parts":[{"fileData":{"fileUri":"gs://bucket/x"}}]}}`),
			"has stored"},
		{gemini, part(`{"hologram":{}}`), `the kind \"hologram\"`},
		// spelled otherwise than the documentation says, or twice
		{gemini, part(`{"fileData":{"fileUri":"data:x","file_uri":"https://evil.example/x"}}`),
			`the kind \"file_uri\"`},
		{gemini, part(`{"fileData":{"fileUri":"data:x"},"file_data":{"fileUri":"https://evil.example/x"}}`),
			`\"file_data\"`},
		{gemini, part(`{"file_data":{"file_Uri":"https://evil.example/x"}}`), "evil.example"},
		{gemini, `{"systemInstruction":{"parts":[]},"system_instruction":{"parts":[{"fileData":{"fileUri":` +
			`"https://evil.example/x"}}]}}`, `\"system_instruction\"`},
		{gemini, `{"cached_content":"cachedContents/1"}`, `has \"cachedContent\"`},
		{gemini, `{"contents":{"parts":{"fileData":{"fileUri":"https://evil.example/x"}}}}`, "evil.example"},
		{gemini, part(`{"fileData":["https://evil.example/x"]}`), `the kind \"fileData\"`},
		{countGemini, `{"generateContentRequest":` + part(`{"fileData":{"fileUri":"https://evil.example/x"}}`) + `}`,
			"evil.example"},
		{countGemini, `{"generate_content_request":` + part(`{"fileData":{"fileUri":"https://evil.example/x"}}`) + `}`,
			"evil.example"},
		{countGemini,
			`{"generate_content_request":[` + part(`{"fileData":{"fileUri":"https://evil.example/x"}}`) + `]}`,
			`\"generateContentRequest\"`},
		{embed, `{"requests":[{"content":{"parts":[{"fileData":{"fileUri":"https://evil.example/x"}}]}}]}`,
			"evil.example"},
		{embed, `{"requests":{"content":{"parts":[{"fileData":{"fileUri":"https://evil.example/x"}}]}}}`,
			"evil.example"},
		{embed, `{"requests":{"content":{"parts":[{"text":"x"}]}}}`, ""},
		{embed, `{"requests":[[{"content":{"parts":[{"fileData":{"fileUri":"https://evil.example/x"}}]}}]]}`,
			`the kind \"requests\"`},
		{gemini, `{"contents":[[{"parts":[{"fileData":{"fileUri":"https://evil.example/x"}}]}]]}`, `\"contents\"`},
		{anthropic, `{"messages":{"role":"user","content":[{"type":"image","source":{"type":"url","url":` +
			`"https://evil.example/x"}}]}}`, `the kind \"messages\"`},
		{chat, `{"messages":[[{"role":"user","content":[{"type":"image_url","image_url":"https://evil.example/x"}]}]]}`,
			`the kind \"messages\"`},
		{chat, says(`{"type":"file","file":["https://evil.example/x"]}`), `the kind \"file\"`},
		{responses, `{"input":[{"type":["item_reference"],"role":"user","id":"msg_1"}]}`, `the kind \"input\"`},
		{responses, `{"input":[{"type":"computer_call_output","output":["https://evil.example/x"]}]}`, `\"output\"`},
		{responses, `{"input":[{"type":"tool_search_output","tools":[{"type":"web_search"}]}]}`, `\"web_search\"`},
		{responses, `{"input":[{"type":"tool_search_output","tools":[{"type":"function","name":"f"}]}]}`, ""},
		{responses, `{"tools":[{"type":"shell","environment":{"type":["container_auto"]}}]}`, `\"shell\"`},
		{responses, `{"tools":[{"type":"shell","environment":{"type":"local"}}]}`, ""},
		// content in the request itself
		{anthropic, says(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`), ""},
		{anthropic, says(`{"type":"tool_result","tool_use_id":"t","content":"https://example.com is text"}`), ""},
		{chat, says(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}`), ""},
		{chat, says(`{"type":"file","file":{"file_data":"data:application/pdf;base64,AA==","filename":"x.pdf"}}`), ""},
		{responses, input(`{"type":"input_image","image_url":"DATA:image/png;base64,AA=="}`), ""},
		{responses, `{"previous_response_id":null,"conversation":null,"input":[{"role":"user","content":"hi"}]}`, ""},
		{gemini, part(`{"inlineData":{"mimeType":"image/png","data":"AA=="}}`), ""},
		{gemini, part(`{"functionResponse":{"name":"f","response":{"output":"https://example.com"}}}`), ""},
	} {
		t.Run(tt.path+tt.body, func(t *testing.T) {
			g := newGateWith(t, streams("{}"), RecorderConfig{}, key, func(c *Config) {
				c.NoProviderTools = "the policy"
			})
			res, body := g.ask(g.request("POST", tt.path, tt.body))
			status, word := 200, ""
			if tt.says != "" {
				status, word = 400, schema.ModelRefusedTools
			}
			if e := g.one(); res.StatusCode != status || str(e.Refused) != word || !strings.Contains(body, tt.says) {
				t.Errorf("it is answered with %d %s, and refused is %q", res.StatusCode, body, str(e.Refused))
			}
		})
	}
}
