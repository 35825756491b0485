package layer

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

func answer(t testing.TB, question string, records ...string) []byte {
	t.Helper()
	var m dns.Msg
	m.SetQuestion(question, dns.TypeA)
	m.Response = true
	for _, r := range records {
		rr, err := dns.NewRR(r)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	p, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func dnsEvent(t uint64, p []byte, proto uint16, ingress bool) kernel.Event {
	ev := event(t, 10, schema.KernelEvent{Kind: schema.KindDNS})
	ev.SetEnds(2, proto, netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.1:53"))
	ev.Payload, ev.Ingress = p, ingress
	return ev
}

func connectEvent(t uint64, remote string) kernel.Event {
	ev := event(t, 10, schema.KernelEvent{Kind: schema.KindConnect, HasResult: true})
	ev.Syscall = "connect"
	ev.SetEnds(2, 6, netip.AddrPort{}, netip.MustParseAddrPort(remote))
	return ev
}

func TestNamesComeFromDNSAnswers(t *testing.T) {
	b, lines := collect(t, Options{})
	chain := answer(t, "WWW.Example.com.", "b.example. 1 A 203.0.113.2", "www.example.com. 1 CNAME a.example.",
		"a.example. 1 CNAME b.example.",
		"evil.example. 1 A 203.0.113.66", "b.example. 1 AAAA 2001:db8::2", "b.example. 1 TXT x")
	tcp := answer(t, "tcp.example.", "tcp.example. 1 A 203.0.113.2")
	tcp = append([]byte{byte(len(tcp) >> 8), byte(len(tcp))}, tcp...)
	sent := answer(t, "forged.example.", "forged.example. 1 A 203.0.113.2")
	push(t, b, forkEvent(0, 1, 10), dnsEvent(1, chain, 17, true), dnsEvent(2, tcp, 6, true),
		dnsEvent(3, sent, 17, false),
		connectEvent(4, "203.0.113.2:443"), connectEvent(5, "203.0.113.66:443"),
		connectEvent(6, "[::ffff:203.0.113.2]:80"), connectEvent(7, "[2001:db8::2]:80"))
	b.Close()
	got := *lines
	if e := got[1]; e.Value != "www.example.com" || e.Protocol != "udp" || e.Remote != "10.0.0.1:53" ||
		len(e.DNS.Answers) != 6 || e.DNS.RCode != "NOERROR" {
		t.Errorf("the answer is %+v, %+v", e, e.DNS)
	}
	want := []schema.DNSAnswer{{Name: "b.example", Type: "A", Data: "203.0.113.2"},
		{Name: "www.example.com", Type: "CNAME", Data: "a.example"}}
	if diff := cmp.Diff(want, got[1].DNS.Answers[:2]); diff != "" {
		t.Error(diff)
	}
	for i, want := range map[int][]string{4: {"tcp.example", "www.example.com"}, 5: nil,
		6: {"tcp.example", "www.example.com"}, 7: {"www.example.com"}} {
		if !slices.Equal(got[i].Names, want) {
			t.Errorf("%s has the names %q, want %q", got[i].Value, got[i].Names, want)
		}
	}
	if got[6].Value != "203.0.113.2:80" {
		t.Errorf("a mapped address is written as %s", got[6].Value)
	}
}

// A segment has a message with its length, as a rule; without, where the length
// was sent first; with others behind it, or only its first part.
func TestDNSOverTCP(t *testing.T) {
	whole := answer(t, "a.example.", "a.example. 1 A 203.0.113.1", "a.example. 1 A 203.0.113.2")
	framed := append([]byte{byte(len(whole) >> 8), byte(len(whole))}, whole...)
	for name, c := range map[string]struct {
		segment []byte
		answers int
	}{
		"with its length": {framed, 2}, "without": {whole, 2}, "two at once": {slices.Concat(framed, framed), 2},
		"the first part": {framed[:len(framed)-3], 1},
	} {
		for _, id := range []uint16{0, 1, uint16(len(whole)), 0x1234, 0xffff} {
			p := bytes.Clone(c.segment)
			if at := len(p) - len(whole); at == 0 {
				binary.BigEndian.PutUint16(p, id)
			} else {
				binary.BigEndian.PutUint16(p[2:], id)
			}
			b, lines := collect(t, Options{})
			push(t, b, forkEvent(0, 1, 10), dnsEvent(1, p, 6, true))
			b.Close()
			if e := (*lines)[1]; e.Value != "a.example" || e.DNS == nil || len(e.DNS.Answers) != c.answers {
				t.Errorf("%s, id %d: %+v, %+v", name, id, e, e.DNS)
			}
		}
	}
}

// A query whose flags could be the number of questions of one without a length.
func TestDNSOverTCPByItsLength(t *testing.T) {
	q := bytes.Clone(answer(t, "hidden.example."))
	binary.BigEndian.PutUint16(q[2:], 1)
	p := append([]byte{byte(len(q) >> 8), byte(len(q))}, q...)
	if name, m := parseDNS(p, true); m == nil || name != "hidden.example" {
		t.Errorf("read as %q, %+v", name, m)
	}
}

func TestTornAndHostileDNS(t *testing.T) {
	whole := answer(t, "a.example.", "a.example. 1 A 203.0.113.1", "a.example. 1 A 203.0.113.2")
	name, m := parseDNS(whole[:len(whole)-3], false)
	if name != "a.example" || m == nil || len(m.Answers) != 1 {
		t.Errorf("a message cut in its second answer gives %q, %+v", name, m)
	}
	b, lines := collect(t, Options{})
	push(t, b, forkEvent(0, 1, 10), dnsEvent(1, []byte("GET / HTTP/1.1\r\n\r\n"), 17, true), dnsEvent(2, nil, 17, true))
	b.Close()
	for _, e := range (*lines)[1:] {
		if e.DNS != nil || e.Marks != schema.MarkUnreadable {
			t.Errorf("no message at all gives %+v", e)
		}
	}
	if s := b.Stats(); s.Unparsed != 2 {
		t.Errorf("%d unparsed, want 2", s.Unparsed)
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := newNameTable()
	for i := range 3 * maxAddresses {
		learn(n, n.byAddr, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), "x")
	}
	a := netip.AddrFrom4([4]byte{10, 0, 0, 1})
	for i := range 100 {
		learn(n, n.byAddr, a, string(rune('a'+i)))
	}
	if len(n.byAddr) != maxAddresses || len(n.byAddr[a]) != maxNamesEach ||
		n.forgotten != 2*maxAddresses+99-(maxNamesEach-1) {
		t.Errorf("%d addresses, %d names, %d forgotten", len(n.byAddr), len(n.byAddr[a]), n.forgotten)
	}
}

// hello is a ClientHello as crypto/tls sends it.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		tls.Client(b, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		b.Close()
	}()
	var head [5]byte
	if _, err := io.ReadFull(a, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(a, body); err != nil {
		t.Fatal(err)
	}
	return append(head[:], body...)
}

func TestServerName(t *testing.T) {
	real := hello(t, "API.Example.com")
	if name, ok := serverName(real); !ok || name != "api.example.com" {
		t.Errorf("crypto/tls's hello gives %q, %v", name, ok)
	}
	if name, ok := serverName(hello(t, "")); !ok || name != "" {
		t.Errorf("a hello without a name gives %q, %v", name, ok)
	}
	for i := range real { // cut anywhere: the name or a plain no, never another
		if name, ok := serverName(real[:i]); ok && name != "api.example.com" {
			t.Errorf("cut at %d: %q", i, name)
		}
	}
	i := slices.Index(real, 'A') // may be random bytes' A
	for ; i < len(real)-3 && string(real[i:i+3]) != "API"; i++ {
	}
	bad := slices.Clone(real)
	bad[i] = 0x1b
	if name, ok := serverName(bad); ok {
		t.Errorf("a name with an escape gives %q", name)
	}
	if name, ok := serverName([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); ok {
		t.Errorf("HTTP gives %q", name)
	}
}

func TestServerNamesBelongToTheirEndpoint(t *testing.T) {
	b, lines := collect(t, Options{})
	ev := event(1, 10, schema.KernelEvent{Kind: schema.KindTLS})
	ev.SetEnds(2, 6, netip.AddrPort{}, netip.MustParseAddrPort("203.0.113.2:443"))
	ev.Payload = hello(t, "api.example.com")
	in := ev
	in.Ingress, in.Time = true, at(2)
	in.SetEnds(2, 6, netip.AddrPort{}, netip.MustParseAddrPort("203.0.113.3:5555"))
	flow := event(3, 10, schema.KernelEvent{Kind: schema.KindFlow, BytesOut: 1, BytesIn: 2})
	flow.SetEnds(2, 6, netip.AddrPort{}, ev.Peer)
	other := flow
	other.Time = at(4)
	other.SetEnds(2, 6, netip.AddrPort{}, in.Peer)
	push(t, b, forkEvent(0, 1, 10), ev, in, flow, other)
	b.Close()
	if e := (*lines)[1]; e.Value != "api.example.com" || e.Remote != "203.0.113.2:443" {
		t.Errorf("the hello is %+v", e)
	}
	if e := (*lines)[3]; !slices.Equal(e.Names, []string{"api.example.com"}) || e.BytesOut != 1 || e.BytesIn != 2 {
		t.Errorf("the flow is %+v", e)
	}
	if e := (*lines)[4]; e.Names != nil {
		t.Errorf("a client's hello names the client: %q", e.Names)
	}
}

func TestTheOtherDirectionOfAConnectionIsNoHost(t *testing.T) {
	b, _ := collect(t, Options{})
	server, client := netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("127.0.0.1:5555")
	connect := event(1, 10, schema.KernelEvent{Kind: schema.KindConnectResult, HasResult: true})
	connect.SetEnds(2, 6, client, server)
	events := []kernel.Event{forkEvent(0, 1, 10), connect}
	for _, to := range []netip.AddrPort{server, client, netip.MustParseAddrPort("127.0.0.1:5556")} {
		f := event(2, 10, schema.KernelEvent{Kind: schema.KindFlow, BytesOut: 1})
		f.SetEnds(2, 6, netip.AddrPort{}, to)
		events = append(events, f)
	}
	push(t, b, events...)
	b.Close()
	if open := b.Stats().Open; len(open) != 1 || open[0].Operation != "127.0.0.1:5556" {
		t.Errorf("open: %+v", open)
	}
}

func FuzzServerName(f *testing.F) {
	f.Add(hello(f, "api.example.com"))
	f.Add(hello(f, ""))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		name, ok := serverName(p)
		if !ok && name != "" {
			t.Errorf("%q although not ok", name)
		}
		for _, c := range []byte(name) {
			if c <= ' ' || c >= 0x7f || c >= 'A' && c <= 'Z' {
				t.Errorf("the name %q", name)
			}
		}
	})
}

func FuzzParseDNS(f *testing.F) {
	f.Add(answer(f, "www.example.com.", "www.example.com. 1 CNAME a.example.", "a.example. 1 A 203.0.113.1"), false)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, p []byte, tcp bool) {
		name, m := parseDNS(p, tcp)
		if m == nil {
			return
		}
		resolved(name, m.Answers)
		e := schema.KernelEvent{RunID: "r", Kind: schema.KindDNS, PID: 1, TID: 1, Value: name, DNS: m}
		line := schema.AppendJSON(nil, &e)
		var got schema.KernelEvent
		if err := schema.DecodeKernelEvent(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatalf("%s: %s", line, diff)
		}
	})
}
