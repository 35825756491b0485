package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// wsWire has one message per text frame of a WebSocket. Its contexts for reading and writing never end, which would
// cost a timer or a watcher per frame. timedConn enforces the timeouts.
type wsWire struct {
	conn *websocket.Conn
	tcp  *timedConn
	in   incoming
	part [4096]byte // of a message
}

func (w *wsWire) read() (_ []byte, err error) {
	w.in.free()
	defer func() {
		if err != nil {
			w.in.free()
		}
	}()
	kind, r, err := w.conn.Reader(context.Background())
	if err != nil {
		return nil, broken(err)
	}
	if kind != websocket.MessageText {
		w.conn.Close(websocket.StatusUnsupportedData, errNotText.Error())
		return nil, errNotText
	}
	w.tcp.begin()
	b, err := w.readAll(r)
	switch {
	case err == nil:
		w.tcp.end() // otherwise closing does not wait for its end
	case isTimeout(err):
		return nil, errTooSlow
	}
	return b, broken(err)
}

// broken distinguishes a client that breaks the protocol from one that is gone, and from a bad message.
func broken(err error) error {
	var system *net.OpError
	switch {
	case err == nil, errors.Is(err, errTooLarge), errors.Is(err, errNoRoom):
	case websocket.CloseStatus(err) != -1, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.As(err, &system):
	default:
		return errProtocol
	}
	return err
}

// readAll is [io.ReadAll] with a limit.
func (w *wsWire) readAll(r io.Reader) ([]byte, error) {
	for {
		n, err := r.Read(w.part[:])
		if w.in.len()+n > w.tcp.limits.Message {
			return nil, errTooLarge
		}
		if err := w.in.add(w.part[:n]); err != nil {
			return nil, err
		}
		switch {
		case err == io.EOF:
			return w.in.message(), nil
		case err != nil:
			return nil, err
		}
	}
}

func (w *wsWire) write(lines []byte) error {
	w.tcp.cork()
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, []byte{'\n'})
		if err := w.conn.Write(context.Background(), websocket.MessageText, line); err != nil {
			return err
		}
		lines = rest
	}
	return w.tcp.uncork()
}

func (w *wsWire) finish(reason string) {
	if len(reason) > 120 {
		reason = reason[:120] // a close frame has room for 123 bytes
	}
	code := websocket.StatusPolicyViolation
	switch reason {
	case "":
		code = websocket.StatusNormalClosure
	case errTooLarge.Error():
		code = websocket.StatusMessageTooBig
	case errProtocol.Error():
		code = websocket.StatusProtocolError
	}
	w.conn.Close(code, reason)
	w.close()
}

func (w *wsWire) socket() *net.UnixConn { return nil }

func (w *wsWire) close() {
	w.tcp.Close() // whatever the WebSocket waits for
	w.conn.CloseNow()
}

// connKey is the context key of a request's *timedConn.
type connKey struct{}

// timedListener accepts connections as *timedConn.
type timedListener struct {
	net.Listener
	limits *Limits
}

func (l timedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &timedConn{Conn: conn, limits: l.limits}, nil
}

// ping detects a client that is gone or stopped: it must answer each ping before the next one is due.
func (w *wsWire) ping(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(every):
			case <-ctx.Done():
				return
			}
			due, done := context.WithTimeout(ctx, every)
			if w.conn.Ping(due) != nil && ctx.Err() == nil {
				w.close()
			}
			done()
		}
	}()
	return cancel
}

// IsLoopback reports whether host, with or without a port, is this machine.
func IsLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".") // a final dot means the DNS root
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
