package sandbox

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Decision is the proxy's decision on one request.
type Decision struct {
	Allowed bool
	// Host and Port are the requested ones.
	Host string
	Port int
	// Rule is the pattern that decided, with its place in the policy, or names another reason: no pattern matched
	// (default), the address is private, the server's name differs.
	Rule string
}

// Rules of the proxy that are not patterns of the policy.
const (
	ruleDefault    = "network.allowedDomains" // none of them matched
	rulePrivate    = "private-address"
	ruleServerName = "server-name"
)

// proxy is the way out of a sandbox with an allowlist: an HTTP proxy outside its network namespace, with a listening
// socket inside. It resolves names itself, after it has decided, and connects only to addresses that it has checked.
type proxy struct {
	allowed, refused []sandboxfile.Domain
	reasons          map[string]string // why a domain is denied, by its entry
	decided          func(Decision)
	server           *http.Server
	listeners        []net.Listener // for forwarded ports
	forward          *httputil.ReverseProxy
	resolve          func(ctx context.Context, host string) ([]netip.Addr, error)
	reach            func(ctx context.Context, network, address string) (net.Conn, error)
	inside           func(port int) (net.Conn, error)
	unchecked        bool // allow everything; tests show what the decisions stop
}

// proxyPort is the proxy's port inside. The network namespace is new, so the port is free.
const proxyPort = 3128

// Limits of the proxy.
const (
	connectTimeout = 30 * time.Second
	headerTimeout  = 60 * time.Second
)

// errRefused is an address or a name to which the proxy does not connect.
type errRefused struct{ rule, why string }

func (e *errRefused) Error() string { return e.why }

// newProxy makes a proxy. inside connects to a port of the sandbox's own loopback device; nil means that there is
// none.
func newProxy(n NetProfile, decided func(Decision), inside func(port int) (net.Conn, error)) (*proxy, error) {
	p := &proxy{decided: decided, inside: inside, reasons: n.reasons,
		resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}}
	p.reach = new(net.Dialer).DialContext
	if p.decided == nil {
		p.decided = func(Decision) {}
	}
	for _, l := range []struct {
		texts []string
		into  *[]sandboxfile.Domain
		any   bool
	}{{n.AllowedDomains, &p.allowed, false}, {n.DeniedDomains, &p.refused, true}} {
		for _, text := range l.texts {
			d, err := sandboxfile.ParseDomain(text, l.any)
			if err != nil {
				return nil, err
			}
			*l.into = append(*l.into, d)
		}
	}
	p.server = &http.Server{Handler: http.HandlerFunc(p.handle), ReadHeaderTimeout: headerTimeout,
		ErrorLog: log.New(discard{}, "", 0)}
	p.forward = &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host },
		ErrorHandler: p.explain, ErrorLog: p.server.ErrorLog,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return p.dialAddr(ctx, addr)
			},
			ResponseHeaderTimeout: 0, MaxIdleConns: 32, IdleConnTimeout: headerTimeout, DisableCompression: true,
		},
	}
	return p, nil
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// serve accepts connections from a listening socket, and owns it. They are requests to the proxy, or connections to
// forwarded ports.
func (p *proxy) serve(l net.Listener, forwarded map[int]string) {
	port := l.Addr().(*net.TCPAddr).Port
	if port == proxyPort {
		go p.server.Serve(l)
		return
	}
	p.listeners = append(p.listeners, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.pass(c.(*net.TCPConn), forwarded[port], port)
		}
	}()
}

// pass joins a connection to a forwarded port with one to the host's port.
func (p *proxy) pass(inner *net.TCPConn, host string, port int) {
	defer inner.Close()
	_, ok, rule := p.decide(host, port)
	p.decided(Decision{ok, host, port, rule})
	if !ok {
		return
	}
	server, err := p.dial(context.Background(), host, port)
	if err != nil {
		return
	}
	defer server.Close()
	join(inner, server.(*net.TCPConn))
}

// halfConn is a connection that can be closed for writing only.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// join copies in both directions until both ends are done.
func join(a, b halfConn) {
	var wg sync.WaitGroup
	half := func(to, from halfConn) {
		defer wg.Done()
		if _, err := io.Copy(to, from); err != nil {
			to.Close() // otherwise the other direction would wait forever
			from.Close()
			return
		}
		_ = to.CloseWrite()
	}
	wg.Add(2)
	go half(a, b)
	half(b, a)
	wg.Wait()
}

func (p *proxy) close() {
	_ = p.server.Close()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.forward.Transport.(*http.Transport).CloseIdleConnections()
}

func proxyURL() string { return "http://" + proxyAddress() }

func proxyAddress() string { return "127.0.0.1:" + strconv.Itoa(proxyPort) }

// Proxied reports whether an environment points to the proxy of a sandbox.
func Proxied(env []string) bool { return slices.Contains(env, "HTTP_PROXY="+proxyURL()) }

// env returns the variables that point programs to the proxy, in their different spellings. What a policy allows on
// all ports of the host's loopback address is reachable only through the proxy.
func (p *proxy) env() []string {
	at := proxyURL()
	direct := slices.DeleteFunc([]string{"localhost", "127.0.0.1", "::1"}, func(name string) bool {
		return slices.ContainsFunc(p.allowed, func(d sandboxfile.Domain) bool {
			return (d.Port == 0 || d.Addr.Is6()) && d.Match(name, d.Port)
		})
	})
	local := strings.Join(direct, ",")
	return []string{
		"HTTP_PROXY=" + at, "HTTPS_PROXY=" + at, "http_proxy=" + at, "https_proxy=" + at, "ALL_PROXY=" + at,
		"all_proxy=" + at,
		"NO_PROXY=" + local, "no_proxy=" + local, "NODE_USE_ENV_PROXY=1",
	}
}

// decide checks host and port against the lists only.
func (p *proxy) decide(host string, port int) (rule sandboxfile.Domain, ok bool, why string) {
	if p.unchecked {
		return sandboxfile.Domain{}, true, ""
	}
	for i, d := range p.refused {
		if d.Match(host, port) {
			return d, false, fmt.Sprintf("network.deniedDomains[%d]", i)
		}
	}
	for i, d := range p.allowed {
		if d.Match(host, port) {
			return d, true, fmt.Sprintf("network.allowedDomains[%d]", i)
		}
	}
	return sandboxfile.Domain{}, false, ruleDefault
}

// handle handles one request: CONNECT, or one with an absolute URL.
func (p *proxy) handle(w http.ResponseWriter, r *http.Request) {
	target, usual := r.Host, "443"
	if r.Method != http.MethodConnect {
		if r.URL.Scheme != "http" || r.URL.Host == "" {
			http.Error(w, "assay-run: this is a proxy: ask for an absolute http URL, or CONNECT", http.StatusBadRequest)
			return
		}
		target, usual = r.URL.Host, "80"
	}
	host, port, err := splitTarget(target, usual)
	if err != nil {
		http.Error(w, "assay-run: "+err.Error(), http.StatusBadRequest)
		return
	}
	domain, ok, rule := p.decide(host, port)
	if !ok {
		p.refuse(w, host, port, rule, cmp.Or(p.reasons[domain.String()], "the policy does not allow it"))
		return
	}
	if r.Method == http.MethodConnect {
		p.connect(w, r, host, port, rule)
		return
	}
	p.decided(Decision{true, host, port, rule})
	p.request(w, r)
}

// request forwards a request. Its connection may be upgraded to WebSocket, but to no other protocol: HTTP/2 would
// carry more requests, each of which could name another host.
func (p *proxy) request(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && !p.unchecked {
		r.Header.Del("Upgrade")
	}
	p.forward.ServeHTTP(w, r)
}

func splitTarget(target, usual string) (string, int, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		if host, port, err = net.SplitHostPort(target + ":" + usual); err != nil {
			return "", 0, fmt.Errorf("%q is not a host and port", target)
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("%q is not a host and port", target)
	}
	return host, int(n), nil
}

func (p *proxy) refuse(w http.ResponseWriter, host string, port int, rule, why string) {
	p.decided(Decision{false, host, port, rule})
	w.Header().Set("X-Assay-Rule", rule)
	http.Error(w, fmt.Sprintf("assay-run: no connection to %s: %s (%s)", net.JoinHostPort(host, strconv.Itoa(port)),
		why, rule), http.StatusForbidden)
}

// explain answers a request that could not be forwarded.
func (p *proxy) explain(w http.ResponseWriter, r *http.Request, err error) {
	var no *errRefused
	if errors.As(err, &no) {
		host, port, _ := splitTarget(r.URL.Host, "80")
		p.refuse(w, host, port, no.rule, no.why)
		return
	}
	http.Error(w, "assay-run: "+err.Error(), http.StatusBadGateway)
}

func (p *proxy) dialAddr(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := splitTarget(addr, "80")
	if err != nil {
		return nil, err
	}
	return p.dial(ctx, host, port)
}

// dial connects to an allowed host, at an allowed address.
func (p *proxy) dial(ctx context.Context, host string, port int) (net.Conn, error) {
	rule, ok, why := p.decide(host, port)
	if !ok {
		return nil, &errRefused{why, "the policy does not allow it"}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var addrs []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{a}
	} else if addrs, err = p.resolve(ctx, host); err != nil {
		return nil, err
	}
	var last error = &net.AddrError{Err: "no address", Addr: host}
	for _, a := range addrs {
		a = a.Unmap()
		if !p.unchecked && !public(a) && rule.Addr != a && !(rule.Name == "localhost" && a.IsLoopback()) {
			last = &errRefused{rulePrivate,
				fmt.Sprintf("its address %s is not public; allow the address itself if that is meant", a)}
			continue
		}
		c, err := p.reach(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
		if err == nil {
			return c, nil
		}
		if a.IsLoopback() && p.inside != nil && errors.Is(err, syscall.ECONNREFUSED) { // try a server inside
			if c, err := p.inside(port); err == nil {
				return c, nil
			}
		}
		last = err
	}
	return nil, last
}

// special are blocks that are not the public internet (IANA's special-purpose registries), in addition to those that
// netip knows.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Zone() != "" {
		return false
	}
	for _, s := range special {
		if s.Contains(a) {
			return false
		}
	}
	return true
}

// serveHTTP serves unencrypted HTTP in a tunnel, which some clients send, request by request. Each must name the
// tunnel's host.
func (p *proxy) serveHTTP(conn net.Conn, host string, port int, rule string) {
	target := net.JoinHostPort(host, strconv.Itoa(port))
	ended := make(chan struct{})
	var once sync.Once
	server := &http.Server{
		ReadHeaderTimeout: headerTimeout, ErrorLog: p.server.ErrorLog,
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				once.Do(func() { close(ended) })
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name, asked, err := splitTarget(r.Host, "80")
			if err != nil || !p.isFor(name, host, false) || asked != port && !p.unchecked || r.URL.IsAbs() ||
				r.Method == http.MethodConnect {
				p.refuse(w, host, port, ruleServerName, "the request in the tunnel names "+strconv.Quote(r.Host))
				return
			}
			p.decided(Decision{true, host, port, rule})
			r.URL.Scheme, r.URL.Host = "http", target
			p.request(w, r)
		}),
	}
	_ = server.Serve(&oneConn{conn: conn, ended: ended})
	<-ended
}

// peeked is a connection whose first bytes have been read.
type peeked struct {
	net.Conn
	in *bufio.Reader
}

func (c *peeked) Read(b []byte) (int, error) { return c.in.Read(b) }

// oneConn is a listener for a single existing connection.
type oneConn struct {
	conn  net.Conn
	ended <-chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.ended
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// connect opens a tunnel. The first bytes in it must be for the requested host: otherwise an allowed name would give
// access to any server at the same address.
func (p *proxy) connect(w http.ResponseWriter, r *http.Request, host string, port int, rule string) {
	server, err := p.dial(r.Context(), host, port)
	if err != nil {
		var no *errRefused
		if errors.As(err, &no) {
			p.refuse(w, host, port, no.rule, no.why)
			return
		}
		http.Error(w, "assay-run: "+err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	in := bufio.NewReaderSize(io.MultiReader(io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered())), conn),
		16<<10)
	done := make(chan struct{})
	speaksSSH := make(chan bool, 1)
	var elsewhere atomic.Bool // the proxy itself serves the tunnel
	go func() {
		defer close(done)
		out := bufio.NewReader(server)
		start, _ := out.Peek(len(sshVersion))
		speaksSSH <- string(start) == sshVersion
		_, err := io.Copy(conn, out)
		switch {
		case elsewhere.Load():
		case err == nil:
			_ = closeWrite(conn)
		default:
			conn.Close()
		}
	}()
	first, err := in.Peek(1)
	if err != nil {
		server.Close()
		<-done
		return
	}
	name, said, err := p.greeting(in, first[0], port)
	if errors.Is(err, errSSH) {
		if !p.unchecked && !answers(speaksSSH) {
			err = errHTTP
		} else {
			err = nil
		}
	}
	if errors.Is(err, errHTTP) {
		elsewhere.Store(true)
		server.Close()
		<-done
		p.serveHTTP(&peeked{conn, in}, host, port, rule)
		return
	}
	if err != nil || !p.isFor(name, host, first[0] == tlsHandshake) {
		p.decided(Decision{false, host, port, ruleServerName})
		server.Close()
		conn.Close()
		<-done
		return
	}
	p.decided(Decision{true, host, port, rule})
	if _, err := server.Write(said); err == nil {
		if _, err = io.Copy(server, in); err == nil {
			_ = closeWrite(server)
		}
	} else {
		server.Close()
	}
	<-done
}

// answers waits for the server's first bytes, and reports whether they are SSH.
func answers(speaksSSH <-chan bool) bool {
	select {
	case yes := <-speaksSSH:
		return yes
	case <-time.After(connectTimeout):
		return false
	}
}

const (
	tlsHandshake = 0x16   // ContentType handshake of RFC 8446, section 5.1
	sshVersion   = "SSH-" // RFC 4253, section 4.2
)

var (
	errNotTLS = errors.New("this is not TLS")
	errHTTP   = errors.New("this is to be parsed as HTTP")
	errSSH    = errors.New("this looks like SSH")
	errSeen   = errors.New("seen")
)

// greeting reads the client's first message and returns the server name in it, and the bytes read. On the HTTPS port
// it must be TLS. Anything else but SSH is errHTTP, since each request could name another host, and a server may
// ignore bytes before it. For an SSH client it returns errSSH: the tunnel may continue if the server announces SSH
// first, as every SSH server does and no HTTP server.
func (p *proxy) greeting(in *bufio.Reader, first byte, port int) (name string, said []byte, err error) {
	if first != tlsHandshake {
		if port == 443 {
			return "", nil, errNotTLS
		}
		if p.unchecked {
			return "", nil, nil
		}
		if first == sshVersion[0] {
			if start, _ := in.Peek(len(sshVersion)); string(start) == sshVersion {
				return "", nil, errSSH
			}
		}
		return "", nil, errHTTP
	}
	seen := &recorded{from: in}
	var hello bool
	err = tls.Server(seen, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, hello = h.ServerName, true
		return nil, errSeen
	}}).Handshake()
	if !hello {
		return "", nil, err
	}
	return name, seen.said.Bytes(), nil
}

// recorded is a connection that can only be read.
type recorded struct {
	net.Conn
	from io.Reader
	said bytes.Buffer
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.said.Write(b[:n])
	return n, err
}

func (r *recorded) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorded) Close() error                { return nil }

// isFor reports whether a tunnel to host may be used for the server name in its first message, if any. TLS has one
// unless the host is an address.
func (p *proxy) isFor(name, host string, secure bool) bool {
	if p.unchecked {
		return true
	}
	if name == "" {
		return !secure || isAddress(host)
	}
	return sameHost(name, host)
}

func sameHost(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}
