package layer

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Bounds of what is remembered of names.
const (
	maxAddresses = 8192
	maxNamesEach = 8
)

// nameTable knows which host names DNS answers gave to an address, and which
// server name TLS asked an endpoint for. Both are what the network and the
// program said, and no proof of who answered.
type nameTable struct {
	byAddr     map[netip.Addr][]string
	byEndpoint map[netip.AddrPort][]string
	forgotten  uint64
	unparsed   uint64 // payloads that could not be read
}

func newNameTable() *nameTable {
	return &nameTable{byAddr: make(map[netip.Addr][]string), byEndpoint: make(map[netip.AddrPort][]string)}
}

func (t *nameTable) size() int { return len(t.byAddr) + len(t.byEndpoint) }

// of returns the names of an endpoint, sorted, nil when there is none.
func (t *nameTable) of(ap netip.AddrPort) []string {
	if t.size() == 0 || !ap.IsValid() {
		return nil
	}
	a, e := t.byAddr[ap.Addr()], t.byEndpoint[ap]
	if len(e) == 0 || slices.Equal(a, e) {
		return a
	}
	if len(a) == 0 {
		return e
	}
	both := slices.Concat(a, e)
	slices.Sort(both)
	return slices.Compact(both)
}

// hear reads the payload of a dns or tls event, and learns the names in it. ok is false if it could not be read.
func (t *nameTable) hear(ev *kernel.Event) (name string, msg *schema.DNSMessage, ok bool) {
	if ev.Kind == schema.KindTLS {
		name, ok = serverName(ev.Payload)
		if ok && !ev.Ingress && ev.Peer.IsValid() { // ours, not one that a client sent to us
			learn(t, t.byEndpoint, kernel.Unmapped(ev.Peer), name)
		}
	} else {
		name, msg = parseDNS(ev.Payload, ev.Protocol == "tcp")
		if ok = msg != nil; ok && msg.Response && ev.Ingress {
			for _, addr := range resolved(name, msg.Answers) {
				learn(t, t.byAddr, addr, name)
			}
		}
	}
	if !ok {
		t.unparsed++
	}
	return name, msg, ok
}

// learn adds name to m[key]. Lists are replaced, never changed: events that
// were handed out refer to them.
func learn[K comparable](t *nameTable, m map[K][]string, key K, name string) {
	old := m[key]
	i, found := slices.BinarySearch(old, name)
	if found || name == "" {
		return
	}
	if old == nil && len(m) >= maxAddresses || len(old) >= maxNamesEach {
		t.forgotten++
		return
	}
	m[key] = slices.Insert(slices.Clone(old), i, name)
}

// parseDNS reads the first message of a datagram or a TCP segment. TCP puts its
// length before it (RFC 1035, section 4.2.2), as a rule in the same segment: where
// the segment ends with it for certain. Elsewhere, what begins with a length and is
// read as a message has flags for its number of questions.
func parseDNS(p []byte, tcp bool) (name string, msg *schema.DNSMessage) {
	if !tcp || len(p) <= 2 {
		return parseMessage(p)
	}
	end := 2 + int(p[0])<<8 + int(p[1])
	ways := [][]byte{p, p[2:min(len(p), end)]}
	if end == len(p) {
		slices.Reverse(ways)
	}
	for _, p := range ways {
		if name, msg = parseMessage(p); msg != nil {
			break
		}
	}
	return name, msg
}

// parseMessage returns nil for anything but exactly one question. Of a message
// that was cut, the records before the cut are kept.
func parseMessage(p []byte) (name string, _ *schema.DNSMessage) {
	var m dns.Msg
	if m.Unpack(p) != nil {
		unpackHead(&m, p)
	}
	if len(m.Question) != 1 {
		return "", nil
	}
	q := m.Question[0]
	msg := &schema.DNSMessage{Type: dns.Type(q.Qtype).String(), Response: m.Response}
	if !m.Response {
		return hostName(q.Name), msg
	}
	if msg.RCode = dns.RcodeToString[m.Rcode]; msg.RCode == "" {
		msg.RCode = "UNKNOWN"
	}
	for _, rr := range m.Answer {
		h := rr.Header()
		a := schema.DNSAnswer{Name: hostName(h.Name), Type: dns.Type(h.Rrtype).String()}
		switch rr := rr.(type) {
		case *dns.A:
			a.Data = addrString(rr.A)
		case *dns.AAAA:
			a.Data = addrString(rr.AAAA)
		case *dns.CNAME:
			a.Data = hostName(rr.Target)
		}
		msg.Answers = append(msg.Answers, a)
	}
	return hostName(q.Name), msg
}

// unpackHead fills m with the header, the question and as many answers as are
// whole; m is left without a question where not even that is.
func unpackHead(m *dns.Msg, p []byte) {
	m.Question, m.Answer = nil, nil
	if len(p) < 12 || p[4] != 0 || p[5] != 1 { // QDCOUNT, RFC 1035 section 4.1.1
		return
	}
	m.Response, m.Rcode = p[2]&0x80 != 0, int(p[3]&15)
	name, off, err := dns.UnpackDomainName(p, 12)
	if err != nil || off+4 > len(p) {
		return
	}
	m.Question = []dns.Question{{Name: name, Qtype: uint16(p[off])<<8 | uint16(p[off+1])}}
	off += 4
	for n := int(p[6])<<8 | int(p[7]); n > 0 && off < len(p); n-- {
		rr, next, err := dns.UnpackRR(p, off)
		if err != nil {
			return
		}
		m.Answer, off = append(m.Answer, rr), next
	}
}

func addrString(ip []byte) string {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return ""
	}
	return a.Unmap().String()
}

// hostName is a name as the layer has it: lower case, without the final dot.
// The parser has escaped what is not printable.
func hostName(s string) string {
	if s = strings.ToLower(s); s != "." {
		s = strings.TrimSuffix(s, ".")
	}
	return s
}

// resolved returns the addresses that answers give to name, by way of CNAMEs
// in any order; a record for any other name is not believed.
func resolved(name string, answers []schema.DNSAnswer) (addrs []netip.Addr) {
	known := map[string]bool{name: true}
	for grown := true; grown; {
		grown = false
		for _, a := range answers {
			if a.Type == "CNAME" && known[a.Name] && !known[a.Data] {
				known[a.Data], grown = true, true
			}
		}
	}
	for _, a := range answers {
		if known[a.Name] && (a.Type == "A" || a.Type == "AAAA") {
			if addr, err := netip.ParseAddr(a.Data); err == nil {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}
