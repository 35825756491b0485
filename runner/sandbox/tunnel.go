package sandbox

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// connect opens a tunnel. What comes through it first must be for the host that
// was asked for: else an allowed name would be a way to any server that answers
// at the same address.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request, host string, port int, rule string) {
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
	in := bufio.NewReaderSize(io.MultiReader(io.LimitReader(buffered.Reader, int64(buffered.Reader.Buffered())), conn), 16<<10)
	done := make(chan struct{})
	speaksSSH := make(chan bool, 1)
	var elsewhere atomic.Bool // the tunnel ended in the proxy itself
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
		p.plain(&peeked{conn, in}, host, port, rule)
		return
	}
	if err != nil || !p.isFor(name, host, first[0] == tlsHandshake) {
		p.decided(Decision{false, host, port, RuleServerName})
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

// answers waits for what a server says first.
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

// greeting reads the first message and returns the server name in it, and what
// it read. On the port of HTTPS it must be TLS. Anything else but SSH is errHTTP: each
// request could name another host, and a server may pass over what comes before one. A
// client of SSH is errSSH: it may go on where the server said first that it speaks SSH,
// as every server of SSH does and none of HTTP.
func (p *Proxy) greeting(in *bufio.Reader, first byte, port int) (name string, said []byte, err error) {
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

// recorded is a connection that only listens.
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

// isFor tells whether a tunnel to host may be used for the server name that was said in
// it, if any. TLS says one, but for an address.
func (p *Proxy) isFor(name, host string, secure bool) bool {
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
