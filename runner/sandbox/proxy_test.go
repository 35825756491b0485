package sandbox

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// proxied is a client of a proxy with some rules, and what the proxy decided.
type proxied struct {
	t      *testing.T
	proxy  *proxy
	addr   string
	mu     sync.Mutex
	said   []Decision
	client *http.Client
}

func newProxied(t *testing.T, n NetProfile, names map[string]string) *proxied {
	t.Helper()
	c := &proxied{t: t}
	p, err := newProxy(n, func(d Decision) { c.mu.Lock(); defer c.mu.Unlock(); c.said = append(c.said, d) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		if a, ok := names[host]; ok {
			return []netip.Addr{netip.MustParseAddr(a)}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.proxy = p
	go p.server.Serve(l)
	t.Cleanup(p.close)
	c.addr = l.Addr().String()
	at, _ := url.Parse("http://" + c.addr)
	c.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// open turns the decisions off, and sends all connections to one place.
func (c *proxied) open(to string) {
	c.proxy.unchecked = true
	c.proxy.reach = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, to)
	}
}

func (c *proxied) last() Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.said) == 0 {
		return Decision{}
	}
	return c.said[len(c.said)-1]
}

func TestProxyAllowsAndRefuses(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		fmt.Fprint(w, "hello "+r.Host)
	}))
	defer web.Close()
	secure := httptest.NewTLSServer(web.Config.Handler)
	defer secure.Close()
	port := func(s *httptest.Server) string { _, p, _ := net.SplitHostPort(s.Listener.Addr().String()); return p }
	profile := NetProfile{
		AllowedDomains: []string{"127.0.0.1", "localhost:" + port(web), "*.example.org", "rebound.example.com"},
		DeniedDomains:  []string{"bad.example.org"},
	}
	names := map[string]string{"localhost": "127.0.0.1", "rebound.example.com": "169.254.169.254",
		"in.example.org": "10.0.0.1"}
	c := newProxied(t, profile, names)
	for _, spelled := range []string{"other.net", "bad.example.org", "example.org", "2130706433", "0177.0.0.1",
		"127.1"} {
		names[spelled] = "127.0.0.1" // as C libraries take the last three
	}
	open := newProxied(t, profile, names)
	open.open(web.Listener.Addr().String())
	for name, want := range map[string]struct {
		url, rule string
		ok        bool
	}{
		"an address that is named":       {web.URL, "network.allowedDomains[0]", true},
		"TLS to it":                      {secure.URL, "network.allowedDomains[0]", true},
		"a name with its port":           {"http://localhost:" + port(web), "network.allowedDomains[1]", true},
		"the name with another port":     {"http://localhost:1", ruleDefault, false},
		"a name that is not there":       {"http://other.net", ruleDefault, false},
		"a denied name":                  {"http://bad.example.org", "network.deniedDomains[0]", false},
		"a domain for its subdomains":    {"http://example.org", ruleDefault, false},
		"a name at a private address":    {"http://in.example.org", rulePrivate, false},
		"a name at the metadata address": {"http://rebound.example.com/latest", rulePrivate, false},
		"the metadata address":           {"http://169.254.169.254/", ruleDefault, false},
		"a decimal address":              {"http://2130706433:" + port(web), ruleDefault, false},
		"an octal address":               {"http://0177.0.0.1:" + port(web), ruleDefault, false},
		"a short address":                {"http://127.1:" + port(web), ruleDefault, false},
		"a mapped metadata address":      {"http://[::ffff:169.254.169.254]/", ruleDefault, false},
		"a redirect to the metadata":     {web.URL + "/?to=http://169.254.169.254/latest", ruleDefault, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.client.Get(want.url)
			if err != nil {
				if want.ok {
					t.Fatal(err)
				}
			} else {
				body, _ := io.ReadAll(r.Body)
				r.Body.Close()
				if got := r.StatusCode == 200; got != want.ok {
					t.Errorf("status %s: %s", r.Status, body)
				}
				if !want.ok && !strings.Contains(string(body), want.rule) {
					t.Errorf("the answer %q does not name the rule", body)
				}
			}
			if d := c.last(); d.Allowed != want.ok || d.Rule != want.rule {
				t.Errorf("decided %+v", d)
			}
			if want.ok {
				return
			}
			if r, err = open.client.Get(want.url); err != nil {
				t.Fatalf("without a decision: %v", err)
			}
			if r.Body.Close(); r.StatusCode != 200 {
				t.Errorf("is stopped by something else: %s", r.Status)
			}
		})
	}
	// A mapped spelling of an allowed address means that address.
	r, err := c.client.Get("http://[::ffff:127.0.0.1]:" + port(web))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 200 {
		t.Error(r)
	}
}

// A name that is not allowed is not looked up: a query would carry data out.
func TestNoTunnelThroughDNS(t *testing.T) {
	c := newProxied(t, NetProfile{AllowedDomains: []string{"*.example.org"},
		DeniedDomains: []string{"*.bad.example.org"}}, nil)
	c.proxy.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		t.Errorf("looked up %q", host)
		return nil, errors.New("not here")
	}
	for _, url := range []string{"http://c2VjcmV0.evil.net/", "https://c2VjcmV0.evil.net/",
		"http://c2VjcmV0.bad.example.org/", "https://c2VjcmV0.evil.net:53/"} {
		if r, err := c.client.Get(url); err == nil {
			r.Body.Close()
			if r.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s", url, r.Status)
			}
		}
		if d := c.last(); d.Allowed || d.Rule != ruleDefault && d.Rule != "network.deniedDomains[0]" {
			t.Errorf("%s: decided %+v", url, d)
		}
	}
	open, asked := newProxied(t, NetProfile{}, nil), make(chan string, 1)
	open.open("")
	open.proxy.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		asked <- host
		return nil, errors.New("not here")
	}
	if r, err := open.client.Get("http://c2VjcmV0.evil.net/"); err == nil {
		r.Body.Close()
	}
	if len(asked) != 1 {
		t.Error("without a decision the name is not looked up either")
	}
}

func TestTunnelsAreForTheHostThatWasAskedFor(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "secret of "+r.Host)
	}))
	defer secure.Close()
	at := secure.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	c := newProxied(t, NetProfile{AllowedDomains: []string{"localhost:" + port, "127.0.0.1:" + port}},
		map[string]string{"localhost": "127.0.0.1"})
	tunnel := func(t *testing.T, target string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
		answer := make([]byte, 39)
		if _, err := io.ReadFull(conn, answer); err != nil || !strings.Contains(string(answer), " 200 ") {
			t.Fatalf("%q %v", answer, err)
		}
		return conn
	}
	for name, want := range map[string]struct {
		target, sni string
		ok          bool
	}{
		"the same name":             {"localhost:" + port, "localhost", true},
		"another name in the hello": {"localhost:" + port, "evil.example.org", false},
		"no name in the hello":      {"localhost:" + port, "", false},
		"an address without a name": {"127.0.0.1:" + port, "", true},
		"an address with a name":    {"127.0.0.1:" + port, "evil.example.org", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := tls.Client(tunnel(t, want.target),
				&tls.Config{ServerName: want.sni, InsecureSkipVerify: true}).Handshake()
			if (err == nil) != want.ok {
				t.Errorf("handshake: %v", err)
			}
			if d := c.last(); d.Allowed != want.ok {
				t.Errorf("decided %+v", d)
			}
			if !want.ok {
				decided := c
				defer func() { c = decided }()
				c = newProxied(t, NetProfile{}, map[string]string{"localhost": "127.0.0.1"})
				c.open(at)
				if err := tls.Client(tunnel(t, want.target),
					&tls.Config{ServerName: want.sni, InsecureSkipVerify: true}).Handshake(); err != nil {
					t.Errorf("is stopped by something else: %v", err)
				}
			}
		})
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello "+r.Host)
	}))
	defer web.Close()
	_, webPort, _ := net.SplitHostPort(web.Listener.Addr().String())
	h := newProxied(t, NetProfile{AllowedDomains: []string{"localhost:" + webPort}},
		map[string]string{"localhost": "127.0.0.1"})
	c = h
	for host, want := range map[string]string{"localhost:" + webPort: "200", "evil.example.org": "403",
		"127.0.0.1:" + webPort: "403"} {
		t.Run("plain HTTP in a tunnel for "+host, func(t *testing.T) {
			conn := tunnel(t, "localhost:"+webPort)
			for range 2 { // the second request on a connection is judged as well
				fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
				buf := make([]byte, 2048)
				n, err := conn.Read(buf)
				if err != nil || !strings.Contains(string(buf[:n]), " "+want+" ") {
					t.Fatalf("%q %v, want %s", buf[:n], err, want)
				}
			}
			if d := h.last(); d.Allowed != (want == "200") {
				t.Errorf("decided %+v", d)
			}
		})
	}
}

// A connection that is upgraded to HTTP/2 would carry requests for other hosts that are not parsed.
func TestUpgradesThroughTheProxy(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.Header.Get("Upgrade"); to != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", to)
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		fmt.Fprintln(w, r.Header)
	}))
	defer web.Close()
	_, port, _ := net.SplitHostPort(web.Listener.Addr().String())
	p := newProxied(t, NetProfile{AllowedDomains: []string{"localhost:" + port}},
		map[string]string{"localhost": "127.0.0.1"})
	tunnel := "CONNECT localhost:" + port + " HTTP/1.1\r\nHost: x\r\n\r\n"
	get := func(target, upgrade string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: localhost:" + port + "\r\n" +
			"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" +
			"Upgrade: " + upgrade + "\r\n\r\n"
	}
	absolute := "http://localhost:" + port + "/"
	for name, c := range map[string]struct {
		requests []string
		want     int
	}{
		"WebSocket":              {[]string{get(absolute, "websocket")}, 101},
		"WebSocket in a tunnel":  {[]string{tunnel, get("/", "WebSocket")}, 101},
		"HTTP/2":                 {[]string{get(absolute, "h2c")}, 200},
		"HTTP/2 in a tunnel":     {[]string{tunnel, get("/", "h2c")}, 200},
		"one of two":             {[]string{get(absolute, "websocket, h2c")}, 200},
		"one of two in a tunnel": {[]string{tunnel, get("/", "websocket, h2c")}, 200},
		"a second line":          {[]string{tunnel, get("/", "h2c\r\nUpgrade: websocket")}, 200},
		"a tunnel in a tunnel": {[]string{tunnel, strings.Replace(tunnel, "Host: x", "Host: localhost:"+port, 1)},
			403},
		"another word in a request": {[]string{get(absolute, "tcp")}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			in, got := bufio.NewReader(conn), 0
			for _, r := range c.requests {
				fmt.Fprint(conn, r)
				res, err := http.ReadResponse(in, &http.Request{Method: strings.Fields(r)[0]})
				if err != nil {
					t.Fatal(err)
				}
				got = res.StatusCode
			}
			if got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// Bytes that are neither TLS nor HTTP reach no server: some ignore bytes before a request, which may then name any
// host. SSH passes if the server announces it.
func TestNothingElseGoesThroughATunnel(t *testing.T) {
	for name, c := range map[string]struct {
		says, greets string
		through      bool
	}{
		"an empty line first":            {"\r\nGET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "", false},
		"a bare newline first":           {"\nGET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "", false},
		"an unknown method":              {"BREW / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "", false},
		"a method in lower case":         {"get / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "", false},
		"a space first":                  {" GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "", false},
		"a protocol that nobody knows":   {"hello\nworld\n", "220 welcome\r\n", false},
		"SSH to a server that is none":   {"SSH-2.0-x / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "HTTP", false},
		"SSH to a server that speaks it": {"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0-server\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			got := make(chan string, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					got <- err.Error()
					return
				}
				defer conn.Close()
				fmt.Fprint(conn, c.greets)
				buf := make([]byte, 256)
				n, _ := conn.Read(buf)
				got <- string(buf[:n])
			}()
			p := newProxied(t, NetProfile{AllowedDomains: []string{"localhost:" + port}},
				map[string]string{"localhost": "127.0.0.1"})
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "CONNECT localhost:%s HTTP/1.1\r\nHost: x\r\n\r\n%s", port, c.says)
			want := ""
			if c.through {
				want = c.says
			} else {
				defer func() {
					if d := p.last(); d.Allowed {
						t.Errorf("decided %+v", d)
					}
				}()
			}
			if reached := <-got; reached != want {
				t.Errorf("%q reached the server, want %q", reached, want)
			}
		})
	}
}

func TestDomains(t *testing.T) {
	for _, bad := range []string{"", "*", "*.com", "com", "http://a.b", "a.b/c", "a.b:0", "a.b:65536", "a.b:01", "::1",
		"[::1", "[127.0.0.1]", "a..b", ".a.b", "a*.b.c", "*.*.a.b", "0177.0.0.1", "10.1", "a.b:x", "[::1]x"} {
		if d, err := sandboxfile.ParseDomain(bad, false); err == nil {
			t.Errorf("%q is taken for %+v", bad, d)
		}
	}
	for _, c := range []struct {
		pattern, host string
		port          int
		want          bool
	}{
		{"a.b", "A.B.", 1, true}, {"a.b", "x.a.b", 1, false}, {"*.a.b", "x.y.a.b", 1, true}, {"*.a.b", "a.b", 1, false},
		{"*.a.b", "xa.b", 1, false},
		{"a.b:443", "a.b", 443, true}, {"a.b:443", "a.b", 80, false}, {"[::1]:80", "::1", 80, true},
		{"[::1]", "0:0:0:0:0:0:0:1", 9, true},
		{"127.0.0.1", "::ffff:127.0.0.1", 9, true}, {"127.0.0.1", "2130706433", 9, false},
		{"localhost", "localhost", 1, true},
	} {
		d, err := sandboxfile.ParseDomain(c.pattern, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Match(c.host, c.port); got != c.want {
			t.Errorf("%s matches %s:%d: %v", c.pattern, c.host, c.port, got)
		}
	}
	if d, err := sandboxfile.ParseDomain("*:22", true); err != nil || !d.Match("any.thing", 22) ||
		!d.Match("10.0.0.1", 22) ||
		d.Match("any.thing", 23) {
		t.Errorf("%+v %v", d, err)
	}
}
