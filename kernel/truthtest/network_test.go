//go:build linux && amd64

package truthtest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/assay-run/assay-run/schema"
)

// sayNet adds to say what network events have besides.
func sayNet(e *schema.KernelEvent, dir string) string {
	s := say(e, dir)
	if e.BytesOut != 0 {
		s += fmt.Sprintf(" out=%d", e.BytesOut)
	}
	if d := e.DNS; d != nil {
		s += " " + d.Type + " " + d.RCode
		for _, a := range d.Answers {
			s += fmt.Sprintf(" %s=%s", a.Name, a.Data)
		}
	}
	if e.Remote != "" {
		s += " at " + e.Remote
	}
	if len(e.Names) > 0 {
		s += " alias " + strings.Join(e.Names, ",")
	}
	return s
}

// dnsServer answers for alias.test and tcp.test, over UDP and TCP.
func dnsServer(t *testing.T, addr string) {
	t.Helper()
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg)
		a.SetReply(q)
		for _, s := range map[string][]string{
			"alias.test.": {"alias.test. 1 IN CNAME real.test.", "real.test. 1 IN A 127.0.0.1"},
			"tcp.test.":   {"tcp.test. 1 IN A 127.0.0.1"},
		}[q.Question[0].Name] {
			rr, err := dns.NewRR(s)
			if err != nil {
				t.Error(err)
			}
			a.Answer = append(a.Answer, rr)
		}
		if len(a.Answer) == 0 {
			a.Rcode = dns.RcodeNameError
		}
		w.WriteMsg(a)
	})
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: h}, {Listener: tcp, Handler: h}} {
		ready := make(chan struct{})
		s.NotifyStartedFunc = func() { close(ready) }
		go s.ActivateAndServe()
		<-ready
		t.Cleanup(func() { s.Shutdown() })
	}
}

func TestSockets(t *testing.T) {
	need(t, "python3")
	const resolver = "127.0.53.53"
	dnsServer(t, resolver+":53")
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	host := srv.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(host)
	dir := t.TempDir()
	r := record(t, dir, nil, "/usr/bin/python3", source(t)+"/testdata/net.py", resolver, port)
	r.claims(t)
	var got []string
	for i := range r.events {
		e := &r.events[i]
		switch e.Kind {
		case schema.KindBind:
			// Which port the kernel chooses is its own affair.
			if h, _, err := net.SplitHostPort(e.Value); err == nil && e.Protocol != "unix" {
				e.Value = h + ":any"
			}
		case schema.KindAccept, schema.KindConnect, schema.KindSendto, schema.KindListen, schema.KindDNS:
		default:
			continue
		}
		for range e.Times() {
			got = append(got, sayNet(e, dir))
			e.BytesOut = 0 // a repeat has the sum of all
		}
	}
	real := "alias.test=real.test real.test=127.0.0.1"
	want := []string{
		"bind 127.0.0.1:any", "sendto 127.0.0.2:40001 out=3", "sendto 127.0.0.2:40001 out=6", "sendto 127.0.0.2:40001",
		"connect 127.0.0.1:40002", "sendto 127.0.0.1:40002 out=4", "sendto [::1]:40003 out=3",
		"sendto 127.0.53.53:53 out=28", "dns alias.test A  at 127.0.53.53:53",
		"dns alias.test A NOERROR " + real + " at 127.0.53.53:53",
		"connect 127.0.53.53:53", "sendto 127.0.53.53:53 out=30", "dns missing.test AAAA  at 127.0.53.53:53",
		"dns missing.test AAAA NXDOMAIN at 127.0.53.53:53",
		"connect 127.0.53.53:53", "dns tcp.test A  at 127.0.53.53:53",
		"dns tcp.test A NOERROR tcp.test=127.0.0.1 at 127.0.53.53:53",
		"dns parts.test A  at 127.0.53.53:53", "dns parts.test A NXDOMAIN at 127.0.53.53:53",
		"connect " + host + " alias alias.test,tcp.test",
		"bind unix:W/sock", "listen unix:W/sock", "connect unix:W/sock", "accept unix:W/sock",
		"bind unix:@truth-abstract", "listen unix:@truth-abstract", "connect unix:@truth-abstract",
		"accept unix:@truth-abstract",
		"bind unix:W/gram", "sendto unix:W/gram out=5",
	}
	// The packets are seen on another processor than the calls, and repeats
	// when the run ends: the order is not what this is about.
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestServerNames(t *testing.T) {
	need(t, "curl", "openssl")
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	host := srv.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(host)
	dir := t.TempDir()
	r := record(t, dir, []string{"PORT=" + port}, "/bin/sh", "-c", `
curl -s -k -o page --resolve curl.test:$PORT:127.0.0.1 https://curl.test:$PORT/
openssl s_client -connect 127.0.0.1:$PORT -servername openssl.test </dev/null >out 2>&1
openssl s_client -connect 127.0.0.1:$PORT -noservername </dev/null >out 2>&1; true`)
	r.claims(t)
	exe := map[uint32]string{}
	var got []string
	for i := range r.events {
		switch e := &r.events[i]; e.Kind {
		case schema.KindExec:
			exe[e.PID] = e.Value
		case schema.KindTLS:
			got = append(got, fmt.Sprintf("%s: %s", exe[e.PID], sayNet(e, dir)))
		}
	}
	want := []string{"/usr/bin/curl: tls curl.test at " + host, "/usr/bin/openssl: tls openssl.test at " + host,
		"/usr/bin/openssl: tls  at " + host}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
