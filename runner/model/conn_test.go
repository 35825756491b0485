package model

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/modelfile"
)

// TestUnreadableRequestsHaveLines sends requests that never reach a server's handler.
func TestUnreadableRequestsHaveLines(t *testing.T) {
	g := newGate(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") })
	for _, request := range []string{
		"what is this\r\n\r\n",
		"POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
		"POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: other\r\n\r\n",
	} {
		c, err := net.Dial("tcp", g.Address())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, request)
		if _, err := io.ReadAll(c); err != nil { // until the server ends it
			t.Fatal(err)
		}
		c.Close()
	}
	events := g.close()
	for _, e := range events {
		if str(e.Refused) != schema.ModelRefusedRequest || e.Status != nil {
			t.Errorf("refused is %q with the status %v", str(e.Refused), e.Status)
		}
	}
	if len(events) != 3 {
		t.Errorf("%d lines, want 3", len(events))
	}
}

// TestLayerIsCompleteByTheKernelsBytes compares the gateway's byte counts with the kernel's.
func TestLayerIsCompleteByTheKernelsBytes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kernel  string
		beyond  int  // bytes that the kernel counted beyond the gateway's
		drained bool // the agent closed each connection, and all was read
		unknown bool // a connection that the gateway did not get
		stranger,
		want string
	}{
		{name: "equal", kernel: schema.Complete, want: schema.Complete},
		{name: "equal, and the gateway closed first", kernel: schema.Complete, drained: false, want: schema.Complete},
		{name: "more that was read to its end: TCP sent some twice", kernel: schema.Complete, beyond: 9, drained: true,
			want: schema.Complete},
		{name: "more", kernel: schema.Complete, beyond: 9, want: schema.Partial},
		{name: "more, and a connection that nobody accepted", kernel: schema.Complete, beyond: 9, drained: true,
			unknown: true, want: schema.Partial},
		{name: "less", kernel: schema.Complete, beyond: -1, drained: true, want: schema.Partial},
		{name: "a stranger's bytes do not count", kernel: schema.Complete, stranger: "{}", want: schema.Complete},
		{name: "the kernel layer is partial", kernel: schema.PartialRingbufDrops, want: schema.Unconfirmed},
		{name: "no kernel layer", kernel: schema.Absent, want: schema.Unconfirmed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t, streams(stream))
			g.cfg.Drained = func(syscall.Conn) bool { return tt.drained }
			g.record.Observed()
			request := fmt.Sprintf("POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n"+
				"Content-Length: 2\r\nConnection: close\r\n\r\n{}", g.Token())
			c, err := net.Dial("tcp", g.Address())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			g.record.Connected(c.LocalAddr().String(), 7)
			fmt.Fprint(c, request)
			if _, err := io.ReadAll(c); err != nil {
				t.Fatal(err)
			}
			if tt.stranger != "" {
				g.ask(g.request("POST", "/anthropic/v1/messages", tt.stranger))
			}
			if tt.unknown {
				g.record.Connected("127.0.0.1:1", 8)
			}
			g.close()
			g.record.Flow(uint64(len(request)+tt.beyond), 0)
			h := &schema.ObservationHealth{KernelLayer: tt.kernel}
			g.record.Health(h)
			if h.ModelLayer != tt.want {
				t.Errorf("model_layer is %s, want %s: %+v %v", h.ModelLayer, tt.want, h.ModelFlow, h.Reasons)
			}
			if tt.want == schema.Partial && (len(h.Reasons) != 1 || h.Reasons[0].Code != reasonBytes) {
				t.Errorf("reasons: %v", h.Reasons)
			}
		})
	}
}

// whole is a health without doubts about the list of hosts.
func whole() *schema.ObservationHealth {
	return &schema.ObservationHealth{KernelLayer: schema.Complete, CgroupCorrelation: schema.Clean,
		NetworkEndpointClaimScope: schema.PeerSet}
}

func TestPath(t *testing.T) {
	connect := func(exec uint64, to string, names ...string) schema.KernelEvent {
		return schema.KernelEvent{Kind: schema.KindConnect, ExecID: exec, Value: to, Names: names}
	}
	flow := func(with string, names ...string) schema.KernelEvent {
		return schema.KernelEvent{Kind: schema.KindFlow, Value: with, Names: names, BytesOut: 10, BytesIn: 20}
	}
	type list = []schema.KernelEvent
	for _, tt := range []struct {
		name   string
		events list
		change func(*schema.ObservationHealth)
		sealed bool
		want   string
		who    []schema.ModelBypass
	}{
		{name: "nothing", want: "alone"},
		{name: "the gateway alone", events: list{connect(5, "127.0.0.1:1"), flow("127.0.0.1:1")}, want: "alone"},
		{name: "a provider by its name", events: list{connect(5, "1.2.3.4:443", "api.anthropic.com"),
			flow("1.2.3.4:443", "api.anthropic.com")}, want: "bypass_possible",
			who: []schema.ModelBypass{{Endpoint: "1.2.3.4:443", Name: "api.anthropic.com", ExecID: new(uint64(5)),
				Exe: "/usr/bin/curl", BytesOut: 10, BytesIn: 20}}},
		{name: "a provider behind a proxy, by the name in TLS", events: list{connect(5, "10.0.0.1:3128"),
			{Kind: schema.KindTLS, ExecID: 5, Value: "api.openai.com", Remote: "10.0.0.1:3128"}, flow("10.0.0.1:3128")},
			want: "bypass_possible", who: []schema.ModelBypass{{Endpoint: "10.0.0.1:3128", Name: "api.openai.com",
				ExecID: new(uint64(5)), Exe: "/usr/bin/curl", BytesOut: 10, BytesIn: 20}}},
		{name: "the upstream itself", events: list{connect(5, "127.0.0.1:99"), flow("127.0.0.1:99")},
			want: "bypass_possible", who: []schema.ModelBypass{{Endpoint: "127.0.0.1:99", ExecID: new(uint64(5)),
				Exe: "/usr/bin/curl", BytesOut: 10, BytesIn: 20}}},
		{name: "an unnamed public host", events: list{flow("[2001:db8::1]:443")}, want: "bypass_possible",
			who: []schema.ModelBypass{{Endpoint: "[2001:db8::1]:443", BytesOut: 10, BytesIn: 20}}},
		{name: "a named host", events: list{connect(5, "1.2.3.4:443", "pypi.org"), flow("1.2.3.4:443", "pypi.org")},
			want: "alone"},
		{name: "a private host", events: list{connect(5, "10.1.2.3:80"), flow("10.1.2.3:80")}, want: "alone"},
		{name: "a name server", events: list{{Kind: schema.KindDNS, Remote: "8.8.8.8:53", Value: "api.anthropic.com"},
			flow("8.8.8.8:53")}, want: "alone"},
		{name: "nobody answered", events: list{connect(5, "1.2.3.4:443", "api.anthropic.com")}, want: "alone"},
		{name: "a check's doing", events: list{{Kind: schema.KindConnect, Class: schema.ClassCheck,
			Value: "1.2.3.4:443"}, flow("1.2.3.4:443")}, want: "alone"},
		{name: "a sandbox", sealed: true, change: func(h *schema.ObservationHealth) { h.KernelLayer = schema.Absent },
			want: "only"},
		{name: "no kernel layer", change: func(h *schema.ObservationHealth) { h.KernelLayer = schema.Absent },
			want: "unknown"},
		{name: "a partial kernel layer",
			change: func(h *schema.ObservationHealth) { h.KernelLayer = schema.PartialRingbufDrops }, want: "unknown"},
		{name: "endpoints that serve diagnosis",
			change: func(h *schema.ObservationHealth) { h.NetworkEndpointClaimScope = schema.DiagnosticOnly },
			want:   "unknown"},
		{name: "a container engine was asked",
			change: func(h *schema.ObservationHealth) { h.Reasons = []schema.Reason{{Code: "engine_asked"}} },
			want:   "unknown"},
		{name: "a packet socket", change: func(h *schema.ObservationHealth) {
			h.Coverage = []schema.Coverage{{Dimension: "network", KnownBlindSpots: []schema.BlindSpot{
				{ID: "other_sockets", Name: "packet sockets", Exercised: new(true)}}}}
		}, want: "unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			upstream, err := modelfile.Upstream(modelfile.Anthropic, "http://127.0.0.1:99")
			if err != nil {
				t.Fatal(err)
			}
			p := NewPath("127.0.0.1:1", []Route{{Provider: modelfile.Provider{Name: modelfile.Anthropic,
				Upstream: upstream}}})
			for i := range tt.events {
				p.Event(&tt.events[i], "/usr/bin/curl")
			}
			h := whole()
			if tt.change != nil {
				tt.change(h)
			}
			p.Health(h, tt.sealed)
			if h.ModelPath != tt.want {
				t.Errorf("model_path is %s, want %s", h.ModelPath, tt.want)
			}
			if d := cmp.Diff(tt.who, h.ModelBypasses); d != "" {
				t.Errorf("bypasses (-want +got):\n%s", d)
			}
		})
	}
}

func TestProviders(t *testing.T) {
	for name, want := range map[string]bool{
		"api.anthropic.com": true, "API.OpenAI.com.": true, "statsig.anthropic.com": true, "claude.ai": true,
		"us-central1-aiplatform.googleapis.com": true, "bedrock-runtime.us-east-1.amazonaws.com": true,
		"my.openai.azure.com": true, "generativelanguage.googleapis.com": true,
		"anthropic.com.example.org": false, "notclaude.ai": false, "storage.googleapis.com": false, "pypi.org": false,
	} {
		if got := isProvider(name); got != want {
			t.Errorf("isProvider(%q) = %v, want %v", name, got, want)
		}
	}
}

// chain records what a Recorder reports about calls.
type chain struct {
	mu   sync.Mutex
	told []string
	at   []int64
}

func (c *chain) Proposed(id, tool string, args []byte, at int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told, c.at = append(c.told, fmt.Sprintf("proposed %s %s %s", id, tool, args)), append(c.at, at)
	return 41 + len(c.told)
}

func (c *chain) Recorded(number int, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf("recorded %d in %d", number, seq))
}

func (c *chain) Answered(id, tool string, failed bool, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told, c.at = append(c.told, fmt.Sprintf("answered %s", id)), append(c.at, at)
}

// TestCallsAreToldInTime sends a call and its result twice, as agents do.
func TestCallsAreToldInTime(t *testing.T) {
	calls := &chain{}
	g := newGateWith(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "tool_result") {
			streams(`data: {"type":"message_stop"}`+"\n\n")(w, r)
			return
		}
		streams(stream)(w, r)
	}, RecorderConfig{Calls: calls}, key)
	now := g.cfg.Now
	began := now()
	g.ask(g.request("POST", "/anthropic/v1/messages", `{"messages":[]}`))
	answered := now()
	g.record.Known(0)
	if len(calls.told) == 0 || calls.told[0] != `proposed toolu_1 Bash {"command":"ls"}` {
		t.Fatalf("told of %q", calls.told)
	}
	result := `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok"}]}]}`
	g.ask(g.request("POST", "/anthropic/v1/messages", result))
	g.ask(g.request("POST", "/anthropic/v1/messages", result))
	g.close()
	var told []string
	for _, what := range calls.told {
		if what != "recorded 42 in 0" { // which comes when its line is written
			told = append(told, what)
		}
	}
	want := []string{`proposed toolu_1 Bash {"command":"ls"}`, "answered toolu_1"}
	if d := cmp.Diff(want, told); d != "" || len(calls.told) != 3 {
		t.Errorf("told (-want +got):\n%s%q", d, calls.told)
	}
	if calls.at[0] < began || calls.at[0] > answered || calls.at[1] < answered {
		t.Errorf("proposed between %d and %d: %d; answered at %d", began, answered, calls.at[0], calls.at[1])
	}
}

// TestCallsOfAnAnswerThatGoesOn has a stream that pauses in the middle.
func TestCallsOfAnAnswerThatGoesOn(t *testing.T) {
	goOn := make(chan struct{})
	g := newGateWith(t, func(w http.ResponseWriter, _ *http.Request) {
		tell(w, stream)
		<-goOn
	}, RecorderConfig{Calls: &chain{}}, key)
	if g.record.Unsettled(1 << 60) {
		t.Error("unsettled before the first request")
	}
	res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if !g.record.Unsettled(1<<60) || g.record.Unsettled(0) {
		t.Error("an answer that goes on is settled, or was unsettled before it began")
	}
	close(goOn)
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	if g.record.Unsettled(1 << 60) {
		t.Error("unsettled after the end")
	}
}

// TestAnswerWithALength: the agent has the answer before the server has finished with it.
func TestAnswerWithALength(t *testing.T) {
	calls := &chain{}
	g := newGateWith(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}],`+
			`"stop_reason":"tool_use"}`)
	}, RecorderConfig{Calls: calls}, key)
	res, _ := g.ask(g.request("POST", "/anthropic/v1/messages", `{"messages":[]}`))
	g.record.Known(0)
	calls.mu.Lock()
	defer calls.mu.Unlock()
	if res.ContentLength <= 0 || len(calls.told) == 0 || calls.told[0] != "proposed t Bash {}" {
		t.Errorf("told of %q by an answer of %d bytes", calls.told, res.ContentLength)
	}
}

func TestWhenAnOffsetPassed(t *testing.T) {
	x := &exchange{response: &passage{memory: newMemory()}, end: 99}
	if x.completed(5) != 99 {
		t.Error("of an answer without bytes, the end is known")
	}
	for i, b := range []string{"abc", "", "de", "f"} {
		x.mark(int64(10*(i+1)), len(b))
		x.response.write([]byte(b))
	}
	for offset, want := range map[int64]int64{1: 10, 3: 10, 4: 30, 5: 30, 6: 40, 7: 40} {
		if got := x.completed(offset); got != want {
			t.Errorf("offset %d passed at %d, want %d", offset, got, want)
		}
	}
	x.responseHeader = http.Header{"Content-Encoding": {"gzip"}}
	if got := x.completed(1); got != 40 {
		t.Errorf("an offset of a decoded answer passed at %d, want 40", got)
	}
}
