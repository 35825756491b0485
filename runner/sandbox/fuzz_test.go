package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

func FuzzSRT(f *testing.F) {
	for _, s := range []string{
		`{"network": {"allowedDomains": ["*.example.org"], "deniedDomains": []}, "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": []}}`,
		`{"network": {"allowedDomains": ["[2001:db8::1]:443"], "deniedDomains": ["*"], "mitmProxy": {}}, "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}`,
		`{"network": {"allowedDomains": [], "allowedDomains": []}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := sandboxfile.ParseSRT(data)
		if err != nil {
			return
		}
		if s.EffectiveMode() != sandboxfile.WorkspaceWrite || s.NetworkMode() != sandboxfile.NetAllowlist {
			t.Errorf("srt settings restrict less than srt: mode %s, network %s", s.EffectiveMode(), s.NetworkMode())
		}
		if _, err := newProxy(NetProfile{AllowedDomains: s.Network.AllowedDomains,
			DeniedDomains: s.Network.DeniedDomains}, nil, nil); err != nil {
			t.Errorf("settings that were accepted make no proxy: %v", err)
		}
	})
}

func FuzzDomain(f *testing.F) {
	for _, s := range [][2]string{{"example.org", "EXAMPLE.org."}, {"*.example.org:443", "a.example.org"},
		{"127.0.0.1", "0x7f.1"}, {"[::1]:80", "::ffff:127.0.0.1"}, {"*.com", "a.com"}, {"localhost", "localhost"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, host string) {
		d, err := sandboxfile.ParseDomain(pattern, false)
		if err != nil || !d.Match(host, 443) {
			return
		}
		// An allowed host is the host itself, or is below a name with a dot.
		plain := strings.TrimSuffix(strings.ToLower(host), ".")
		if _, err := netip.ParseAddr(plain); err == nil {
			if !d.Addr.IsValid() {
				t.Errorf("%q allows the address %q", pattern, host)
			}
			return
		}
		if d.Addr.IsValid() || plain != d.Name &&
			(!d.Sub || !strings.HasSuffix(plain, "."+d.Name) || !strings.Contains(d.Name, ".")) {
			t.Errorf("%q allows %q", pattern, host)
		}
	})
}

// FuzzProxy sends arbitrary input to the proxy, which must only look up allowed names, and connect nowhere: they are
// at private addresses.
func FuzzProxy(f *testing.F) {
	for _, s := range []string{
		"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
		"GET http://a.example.net/x HTTP/1.1\r\nHost: evil.org\r\n\r\n",
		"GET http://example.org@evil.org/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT [::ffff:169.254.169.254]:80 HTTP/1.0\r\n\r\n",
		"POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\nContent-Length: " +
			"3\r\n\r\n0\r\n\r\nGET http://evil.org/ HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		p, err := newProxy(NetProfile{AllowedDomains: []string{"example.org", "*.example.net:80"}}, func(d Decision) {
			if d.Allowed && !strings.EqualFold(strings.TrimSuffix(d.Host, "."), "example.org") &&
				!strings.HasSuffix(strings.ToLower(strings.TrimSuffix(d.Host, ".")), ".example.net") {
				t.Errorf("allowed %+v", d)
			}
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
			if _, ok, _ := p.decide(host, 80); !ok {
				if _, ok, _ := p.decide(host, 443); !ok {
					t.Errorf("looked up %q", host)
				}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		client, server := net.Pipe()
		l := &rawConn{conn: server, done: make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- p.server.Serve(l) }()
		go func() {
			_, _ = client.Write(said)
			_ = client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		}()
		_, _ = io.Copy(io.Discard, io.LimitReader(client, 1<<20))
		client.Close()
		p.close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// rawConn is a listener with one connection.
type rawConn struct {
	conn net.Conn
	done chan struct{}
	once sync.Once
}

func (l *rawConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *rawConn) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *rawConn) Addr() net.Addr { return &net.TCPAddr{} }

// FuzzGreeting sends arbitrary first bytes in a tunnel: what was read is passed on unchanged.
func FuzzGreeting(f *testing.F) {
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"), 443)
	f.Add([]byte("GET / HTTP/1.1\r\n"), 80)
	f.Add([]byte("SSH-2.0-x\r\n"), 22)
	f.Add([]byte("\r\nGET / HTTP/1.1\r\n"), 80)
	f.Fuzz(func(t *testing.T, said []byte, port int) {
		if len(said) == 0 {
			return
		}
		p := &proxy{}
		in := bufio.NewReaderSize(bytes.NewReader(said), 16<<10)
		if _, err := in.Peek(1); err != nil {
			t.Fatal(err)
		}
		_, before, err := p.greeting(in, said[0], port)
		if err == nil && said[0] != tlsHandshake {
			t.Errorf("let %q through on port %d", said, port)
		}
		rest, _ := io.ReadAll(in)
		if err == nil && !slices.Equal(append(before, rest...), said) {
			t.Errorf("%q became %q and %q", said, before, rest)
		}
	})
}
