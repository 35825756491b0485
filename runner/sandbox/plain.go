package sandbox

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// plain serves plain HTTP in a tunnel, as some clients send it, request by
// request: each must name the host that the tunnel was asked for.
func (p *Proxy) plain(conn net.Conn, host string, port int, rule string) {
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
			if err != nil || !p.isFor(name, host, false) || asked != port && !p.unchecked || r.URL.IsAbs() {
				p.refuse(w, host, port, RuleServerName, "the request in the tunnel names "+strconv.Quote(r.Host))
				return
			}
			p.decided(Decision{true, host, port, rule})
			r.URL.Scheme, r.URL.Host = "http", target
			p.forward.ServeHTTP(w, r)
		}),
	}
	_ = server.Serve(&oneConn{conn: conn, ended: ended})
	<-ended
}

// peeked is a connection of which some has been read.
type peeked struct {
	net.Conn
	in *bufio.Reader
}

func (c *peeked) Read(b []byte) (int, error) { return c.in.Read(b) }

// oneConn is a listener to which one connection has come.
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
