package model

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// TestUnreadableRequestsHaveLines sends what no handler of a server gets to see.
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

// TestLayerIsCompleteByTheKernelsBytes holds the gateway's count of bytes against the kernel's.
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

// whole is a health in which nothing speaks against the list of hosts.
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
	curl := schema.KernelEvent{Kind: schema.KindExec, ExecID: 5, Value: "/usr/bin/curl"}
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
		{name: "a provider by its name", events: list{curl, connect(5, "1.2.3.4:443", "api.anthropic.com"),
			flow("1.2.3.4:443", "api.anthropic.com")}, want: "bypass_possible",
			who: []schema.ModelBypass{{Endpoint: "1.2.3.4:443", Name: "api.anthropic.com", ExecID: new(uint64(5)),
				Exe: "/usr/bin/curl", BytesOut: 10, BytesIn: 20}}},
		{name: "a provider behind a proxy, by the name in TLS", events: list{connect(5, "10.0.0.1:3128"),
			{Kind: schema.KindTLS, ExecID: 5, Value: "api.openai.com", Remote: "10.0.0.1:3128"}, flow("10.0.0.1:3128")},
			want: "bypass_possible", who: []schema.ModelBypass{{Endpoint: "10.0.0.1:3128", Name: "api.openai.com",
				ExecID: new(uint64(5)), BytesOut: 10, BytesIn: 20}}},
		{name: "the upstream itself", events: list{connect(5, "127.0.0.1:99"), flow("127.0.0.1:99")},
			want: "bypass_possible", who: []schema.ModelBypass{{Endpoint: "127.0.0.1:99", ExecID: new(uint64(5)),
				BytesOut: 10, BytesIn: 20}}},
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
			upstream, err := Upstream(Anthropic, "http://127.0.0.1:99")
			if err != nil {
				t.Fatal(err)
			}
			p := NewPath("127.0.0.1:1", []Route{{Name: Anthropic, Upstream: upstream}})
			for i := range tt.events {
				p.Event(&tt.events[i])
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
