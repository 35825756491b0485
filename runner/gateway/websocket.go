package gateway

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// wsWire is one message a text frame over a WebSocket.
type wsWire struct {
	conn   *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc
	limits *Limits
	in     incoming
}

func (w *wsWire) read() (_ []byte, err error) {
	w.in.free()
	defer func() {
		if err != nil {
			w.in.free()
		}
	}()
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	kind, r, err := w.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	if kind != websocket.MessageText {
		w.conn.Close(websocket.StatusUnsupportedData, errNotText.Error())
		return nil, errNotText
	}
	timer := time.AfterFunc(w.limits.MessageTimeout, func() { cancel(errTooSlow) })
	defer timer.Stop()
	b, err := w.readAll(r)
	switch {
	case err != nil && context.Cause(ctx) == errTooSlow:
		return nil, errTooSlow
	case errors.Is(err, websocket.ErrMessageTooBig):
		return nil, errTooLarge
	}
	return b, err
}

// readAll is [io.ReadAll] as far as there is room.
func (w *wsWire) readAll(r io.Reader) ([]byte, error) {
	var part [4096]byte
	for {
		n, err := r.Read(part[:])
		if err := w.in.add(part[:n]); err != nil {
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
	ctx, cancel := context.WithTimeout(w.ctx, w.limits.WriteTimeout)
	defer cancel()
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, []byte{'\n'})
		if err := w.conn.Write(ctx, websocket.MessageText, line); err != nil {
			return err
		}
		lines = rest
	}
	return nil
}

func (w *wsWire) finish(reason string) {
	if len(reason) > 120 {
		reason = reason[:120] // a close frame has room for 123 bytes
	}
	code := websocket.StatusNormalClosure
	if reason != "" {
		code = websocket.StatusPolicyViolation
	}
	w.conn.Close(code, reason)
	w.close()
}

func (w *wsWire) socket() *net.UnixConn { return nil }

func (w *wsWire) close() {
	w.cancel()
	w.conn.CloseNow()
}

// httpServer upgrades requests to WebSockets.
func (g *Gateway) httpServer() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(g.upgrade),
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          discardLog(),
	}
}

func (g *Gateway) upgrade(rw http.ResponseWriter, r *http.Request) {
	if err := g.admit(r); err != nil {
		rw.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(rw, err.Error(), http.StatusUnauthorized)
		return
	}
	if !g.enter() {
		http.Error(rw, fmt.Sprintf("more than %d connections", g.limits.Connections), http.StatusServiceUnavailable)
		return
	}
	defer g.leave()
	// Accept refuses a browser's request from another origin.
	conn, err := websocket.Accept(rw, r, nil)
	if err != nil {
		return // it has answered
	}
	conn.SetReadLimit(int64(g.limits.Message))
	w := &wsWire{conn: conn, limits: &g.limits, in: incoming{g: g}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	g.serve(w)
}

// admit checks the bearer token. Without one, only requests for a loopback
// host are served, so that no web page can reach us under a name of its own.
func (g *Gateway) admit(r *http.Request) error {
	if g.cfg.Token == "" {
		if !isLoopback(r.Host) {
			return fmt.Errorf("host %.100q: without a token only loopback hosts are served", r.Host)
		}
		return nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		token = r.URL.Query().Get("token")
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(g.cfg.Token)) != 1 {
		return errors.New("the bearer token is missing or wrong: send ASSAY_RUN_TOKEN in the Authorization header or as the token query parameter")
	}
	return nil
}

// isLoopback tells whether host, with or without a port, is this machine.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
