package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
)

// wire carries messages to and from one client. One goroutine reads; writes
// come one at a time. close ends both.
type wire interface {
	// read returns the next message. It is the caller's to keep. What its
	// bytes take is given back with the next read, or its error.
	read() ([]byte, error)
	// write sends messages, each ending in a newline.
	write(lines []byte) error
	// finish ends the connection after what was written; close at once.
	finish(reason string)
	close()
	// socket is the unix socket below, which tells who the client is, or nil.
	socket() *net.UnixConn
}

var (
	errTooLarge = errors.New("the message is too large")
	errTooSlow  = errors.New("the message took too long to arrive")
	errNoRoom   = errors.New("clients are sending too much at once")
	errProtocol = errors.New("the WebSocket protocol was broken")
	errNotText  = errors.New("messages must be text frames")
)

// lineWire is one message a line over a stream.
type lineWire struct {
	conn   *timedConn
	br     *bufio.Reader
	limits *Limits
	in     incoming
}

func (s *Server) newLineWire(conn net.Conn) *lineWire {
	timed := &timedConn{Conn: conn, limits: &s.limits}
	return &lineWire{timed, bufio.NewReaderSize(timed, 32<<10), &s.limits, incoming{server: s}}
}

func (w *lineWire) read() (_ []byte, err error) {
	defer func() {
		if err != nil {
			w.in.free()
		}
	}()
	for {
		w.in.free()
		// A client may think as long as it likes between messages, but not
		// within one.
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
			return w.in.message(), nil // a last one without a newline
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
