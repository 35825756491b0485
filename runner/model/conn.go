package model

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// traffic counts the bytes of one connection.
type traffic struct {
	in, out atomic.Int64 // bytes from the agent and to it
	whole   atomic.Bool  // the agent closed it, and everything that it sent was read
}

// conn is a connection from an agent.
type conn struct {
	net.Conn
	*traffic
	number  int // its number among the connections from its address
	drained func(syscall.Conn) bool
	release func() // lets another connection in
	closing sync.Once
	unread  *exchange // a request that has begun and has no handler yet; owned by the server's goroutine
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.Add(int64(n))
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.Add(int64(n))
	return n, err
}

// CloseWrite lets the server close its side first, so that the agent gets the answer.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *conn) Close() error {
	c.closing.Do(func() {
		if s, ok := c.Conn.(syscall.Conn); ok && c.drained != nil {
			c.whole.Store(c.drained(s))
		}
		c.release()
	})
	return c.Conn.Close()
}

// counting is a listener that counts the bytes of its connections. It has at most cap(room) connections at a time.
type counting struct {
	net.Listener
	e      *Endpoint
	room   chan struct{}
	closed context.Context
	close  func()
}

// Close also ends an Accept that waits for a free place.
func (l counting) Close() error {
	l.close()
	return l.Listener.Close()
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.room <- struct{}{}:
	case <-l.closed.Done():
		_ = c.Close()
		return nil, net.ErrClosed
	}
	t := &traffic{}
	return &conn{Conn: c, traffic: t, number: l.e.cfg.Record.accepted(c.RemoteAddr().String(), t),
		drained: l.e.cfg.Drained, release: func() { <-l.room }}, nil
}

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}
