package sandboxfile

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Domain is a pattern for the host of a connection.
type Domain struct {
	Name string // lower case; empty: any host
	Sub  bool   // the names below Name, without Name itself
	Addr netip.Addr
	Port int // 0: any
	text string
}

// String is the pattern as written.
func (d Domain) String() string { return d.text }

// parseDomain reads a name (example.org), all names below one (*.example.org), localhost, or an address (192.0.2.1,
// [2001:db8::1]), each with an optional :port. With any, "*" stands for every host. A pattern for a whole top-level
// domain is refused.
func ParseDomain(s string, any bool) (Domain, error) {
	d := Domain{text: s}
	bad := func(why string) (Domain, error) {
		return d, fmt.Errorf("%q: %s", s, why)
	}
	host := s
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return bad("the bracket is not closed")
		}
		addr, err := netip.ParseAddr(s[1:end])
		if err != nil || !addr.Is6() {
			return bad("no IPv6 address in the brackets")
		}
		d.Addr, host = addr.Unmap(), ""
		if rest := s[end+1:]; rest != "" {
			port, ok := strings.CutPrefix(rest, ":")
			if !ok {
				return bad("only a :port may follow the bracket")
			}
			host = ":" + port
		}
	} else if strings.Count(s, ":") > 1 {
		return bad("write an IPv6 address in brackets, as in [2001:db8::1]:443")
	}
	if h, port, ok := strings.Cut(host, ":"); ok {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
			return bad("a port is 1 to 65535")
		}
		host, d.Port = h, n
	}
	if d.Addr.IsValid() {
		return d, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		d.Addr = addr.Unmap()
		return d, nil
	}
	if host == "*" {
		if !any {
			return bad("this would allow every host; name domains, or choose network mode host")
		}
		return d, nil
	}
	name := strings.ToLower(host)
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		d.Sub, name = true, rest
		if !strings.Contains(name, ".") {
			return bad("this would allow a whole top-level domain; name a domain below it")
		}
	}
	if name != "localhost" && !strings.Contains(name, ".") {
		return bad("a domain has a dot, as in example.org, or is localhost")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notInName) {
			return bad("this is not a domain name; write it without a scheme or a path")
		}
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return bad("this is neither a name nor an address in the usual form")
	}
	d.Name = name
	return d, nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// Match reports whether the pattern includes a host, as a name or an address, and a port. An address in an unusual
// notation matches nothing.
func (d Domain) Match(host string, port int) bool {
	if d.Port != 0 && d.Port != port {
		return false
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return d.Addr == addr.Unmap() || !d.Addr.IsValid() && d.Name == ""
	}
	switch {
	case d.Addr.IsValid():
		return false
	case d.Name == "":
		return true
	case d.Sub:
		return strings.HasSuffix(host, "."+d.Name)
	}
	return host == d.Name
}
