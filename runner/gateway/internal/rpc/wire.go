package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// wire carries messages to and from one client. One goroutine reads, and one at a time writes. close ends both.
type wire interface {
	// read returns the next message, which the caller may keep. The memory accounted for it is released by the next
	// read.
	read() ([]byte, error)
	// write sends messages, each of which ends with a newline.
	write(lines []byte) error
	// finish ends the connection after what was written; close ends it at once.
	finish(reason string)
	close()
	// socket is the unix socket that the client uses, which says who it is, or nil.
	socket() *net.UnixConn
}

var (
	errTooLarge = errors.New("the message is too large")
	errTooSlow  = errors.New("the message took too long to arrive")
	errNoRoom   = errors.New("clients are sending too much at once")
	errProtocol = errors.New("the WebSocket protocol was broken")
	errNotText  = errors.New("messages must be text frames")
)

// lineWire has one message per line of a stream.
type lineWire struct {
	conn   *timedConn
	br     *bufio.Reader
	limits *Limits
	in     incoming
}

func (w *lineWire) read() (_ []byte, err error) {
	defer func() {
		if err != nil {
			w.in.free()
		}
	}()
	for {
		w.in.free()
		// A client may pause between messages as long as it likes, but not within one.
		if _, err := w.br.Peek(1); err != nil {
			return nil, err
		}
		line, err := w.readLine()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
}

func (w *lineWire) readLine() ([]byte, error) {
	w.conn.begin()
	defer w.conn.end()
	for {
		part, err := w.br.ReadSlice('\n')
		if w.in.len()+len(part) > w.limits.Message+1 {
			return nil, errTooLarge
		}
		if err := w.in.add(part); err != nil {
			return nil, err
		}
		switch {
		case err == nil:
			line := w.in.message()
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case isTimeout(err):
			return nil, errTooSlow
		case err == io.EOF && w.in.len() > 0:
			return w.in.message(), nil // the last message may lack its newline
		default:
			return nil, err
		}
	}
}

func (w *lineWire) write(lines []byte) error {
	_, err := w.conn.Write(lines)
	return err
}

func (w *lineWire) socket() *net.UnixConn {
	u, _ := w.conn.Conn.(*net.UnixConn)
	return u
}

func (w *lineWire) finish(string) { w.conn.Close() }
func (w *lineWire) close()        { w.conn.Close() }

// corkSize is how many bytes a corked connection gathers before it writes.
const corkSize = 32 << 10

// timedConn is a client's connection with timeouts. They cost no timer in the usual case: a message that is already
// there is read without a deadline, and a write's deadline is moved but never removed.
type timedConn struct {
	net.Conn
	limits *Limits

	// Owned by the reading goroutine:
	within bool // a message has started
	timed  bool // a deadline is set

	mu     sync.Mutex // the reader also writes, for pongs
	corked bool
	buf    []byte
}

// begin and end enclose the reading of a message, which must arrive within Limits.MessageTimeout.
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

// cork gathers what is written until uncork, so that many small messages need one write. Together they take at most
// Limits.WriteTimeout.
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

// limit sets the deadline for the next write. c.mu is held.
func (c *timedConn) limit() { c.SetWriteDeadline(time.Now().Add(c.limits.WriteTimeout)) }

// flush writes what was gathered. c.mu is held.
func (c *timedConn) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}

// incoming is a message that is being read. Beyond its first chunk, it counts against what all clients together may
// hold, until it is freed.
type incoming struct {
	server *Server
	chunks [][]byte // full chunks
	last   []byte
	taken  int // bytes counted
}

const chunkSize = 64 << 10

func (m *incoming) len() int { return len(m.chunks)*chunkSize + len(m.last) }

// add appends a part. Its only error is errNoRoom.
func (m *incoming) add(part []byte) error {
	for len(part) > 0 {
		if len(m.last) == chunkSize {
			if !m.server.reserve(chunkSize) {
				return errNoRoom
			}
			m.taken += chunkSize
			m.chunks = append(m.chunks, m.last)
			m.last = make([]byte, 0, chunkSize)
		}
		n := min(len(part), chunkSize-len(m.last))
		m.last = append(m.last, part[:n]...)
		part = part[n:]
	}
	return nil
}

// message returns a copy of the whole message, and starts the next one.
func (m *incoming) message() []byte {
	b := m.last
	if len(m.chunks) > 0 {
		b = append(slices.Concat(m.chunks...), m.last...)
	}
	m.chunks, m.last = nil, nil
	return b
}

// free stops counting the message once it has been handled, and drops an unfinished one.
func (m *incoming) free() {
	m.server.release(m.taken)
	*m = incoming{server: m.server}
}

// outbox sends messages to one client. A sender writes its own message, and those that others queue meanwhile: so one
// message needs no other goroutine, and many need few writes. A client that does not read blocks its senders, and is
// disconnected when the wire gives up.
type outbox struct {
	wire wire
	max  int

	mu      sync.Mutex
	room    sync.Cond
	buf     []byte
	spare   []byte
	writing bool
	err     error
}

func newOutbox(w wire, max int) *outbox {
	o := &outbox{wire: w, max: max}
	o.room.L = &o.mu
	return o
}

// send queues one message without its newline, and writes it unless another sender does.
func (o *outbox) send(msg []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) > o.max && o.err == nil {
		o.room.Wait()
	}
	if o.err != nil {
		return o.err
	}
	o.buf = append(o.buf, msg...)
	o.buf = append(o.buf, '\n')
	if o.writing {
		return nil
	}
	o.writing = true
	for len(o.buf) > 0 && o.err == nil {
		out := o.buf
		o.buf, o.spare = o.spare[:0], nil
		o.mu.Unlock()
		err := o.wire.write(out)
		o.mu.Lock()
		if cap(out) <= 256<<10 {
			o.spare = out
		}
		if err != nil && o.err == nil {
			o.fail(err)
		}
		o.room.Broadcast()
	}
	o.writing = false
	o.room.Broadcast()
	return o.err
}

// fail drops the queue and refuses new messages. o.mu is held.
func (o *outbox) fail(err error) {
	o.err = err
	o.buf = nil
	o.wire.close()
	o.room.Broadcast()
}

// flush waits until everything sent is written, then refuses new messages.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing {
		o.room.Wait()
	}
	if o.err == nil {
		o.err = io.ErrClosedPipe
	}
}
