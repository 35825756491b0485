package rpc

import (
	"net"
	"sync"
	"time"
)

// corkSize is how many bytes a corked connection gathers before it writes.
const corkSize = 32 << 10

// timedConn is a client's connection that gives up on one that is too slow. It
// costs no timer where nobody waits: a message that is here already is read
// without a deadline, and the deadline of a write is moved but never removed.
type timedConn struct {
	net.Conn
	limits *Limits

	// Of the one goroutine that reads:
	within bool // a message has begun
	timed  bool // there is a deadline

	mu     sync.Mutex // the reader writes, too: pongs
	corked bool
	buf    []byte
}

// begin and end enclose the reading of a message: of what it still needs, all
// must come within Limits.MessageTimeout.
func (c *timedConn) begin() { c.within = true }
func (c *timedConn) end()   { c.within = false }

func (c *timedConn) Read(p []byte) (int, error) {
	if c.within != c.timed {
		var until time.Time
		if c.within {
			until = time.Now().Add(c.limits.MessageTimeout)
		}
		c.SetReadDeadline(until)
		c.timed = c.within
	}
	return c.Conn.Read(p)
}

// Write takes at most Limits.WriteTimeout.
func (c *timedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.corked {
		if len(c.buf)+len(p) <= corkSize {
			c.buf = append(c.buf, p...)
			return len(p), nil
		}
		if err := c.flush(); err != nil {
			return 0, err
		}
	} else {
		c.limit()
	}
	return c.Conn.Write(p)
}

// cork gathers what is written until uncork, so that many small messages are
// one write. All of it takes at most Limits.WriteTimeout.
func (c *timedConn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = true
	c.limit()
}

func (c *timedConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	return c.flush()
}

// limit sets the deadline for what is written next. c.mu is held.
func (c *timedConn) limit() { c.SetWriteDeadline(time.Now().Add(c.limits.WriteTimeout)) }

// flush writes what has been gathered. c.mu is held.
func (c *timedConn) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}
