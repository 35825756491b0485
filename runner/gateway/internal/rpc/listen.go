package rpc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/internal/rundir"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// listener is one address on which a server listens.
type listener struct {
	server *Server
	ln     net.Listener
	http   *http.Server
	dir    *rundir.Dir    // made by the server; may be nil
	at     string         // the address for clients
	done   sync.WaitGroup // the accepting goroutine, and those that refuse clients

	refusing chan struct{} // one place for each client that is being refused
}

func (l *listener) listenUnix(path string) (err error) {
	if path == "" {
		if l.dir, err = rundir.New(); err != nil {
			return err
		}
		path = filepath.Join(l.dir.Path, "gateway")
	} else if err := clearSocket(path); err != nil {
		return err
	}
	l.ln, err = net.Listen("unix", path)
	if err == nil && l.dir == nil { // otherwise the directory keeps others out
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		if l.ln != nil {
			l.ln.Close()
		}
		l.dir.Remove()
		return fmt.Errorf("listen on unix socket %s: %w", path, err)
	}
	l.at = path
	return nil
}

// clearSocket removes a socket that nobody serves.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on unix socket: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("listen on unix socket %s: the path exists and is not a socket", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return fmt.Errorf("listen on unix socket %s: another program is listening on it", path)
	}
	return os.Remove(path)
}

func (l *listener) listenWS(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", address, err)
	}
	if l.server.cfg.Authenticate == nil && !IsLoopback(host) {
		return fmt.Errorf("listen on %q: without a token, only a loopback address is allowed, such as 127.0.0.1:0",
			address)
	}
	if l.ln, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("listen on %q: %w", address, err)
	}
	l.http = l.server.httpServer()
	l.at = "ws://" + l.ln.Addr().String()
	return nil
}

func (l *listener) accept() {
	if l.http != nil {
		l.http.Serve(timedListener{l.ln, &l.server.limits})
		return
	}
	for {
		conn, err := l.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || isTimeout(err) {
				return
			}
			time.Sleep(acceptAgain) // the client has left, or there are no descriptors at the moment
			continue
		}
		if l.server.enter() {
			go l.serve(conn)
			continue
		}
		l.refusing <- struct{}{}
		l.done.Go(func() {
			l.refuse(conn)
			<-l.refusing
		})
	}
}

const (
	acceptAgain  = 10 * time.Millisecond
	refuseTime   = 2 * time.Second // for a client to read that it is refused
	refuseAtOnce = 1024
)

// refuse tells a client that there is no place for it. It reads what the client sends, since closing a connection
// with unread data resets it, and the client might lose the answer.
func (l *listener) refuse(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(refuseTime))
	failure := jsonrpc.Errorf(CodeBusy, "more than %d connections: try again later", l.server.limits.Connections)
	if _, err := conn.Write(append(jsonrpc.AppendError(nil, nil, failure), '\n')); err != nil {
		return
	}
	if u, ok := conn.(*net.UnixConn); ok && u.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, conn) // until the client closes it or its time is over
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// stop accepts no more clients. Clients that have connected to a unix socket are still served: what they sent before
// they left counts.
func (l *listener) stop() {
	if u, ok := l.ln.(*net.UnixListener); ok {
		u.SetDeadline(time.Unix(1, 0)) // makes Accept return
		l.done.Wait()
		for _, conn := range backlog(u) {
			l.server.enterLate()
			go l.serve(conn)
		}
	}
	l.ln.Close()
	l.done.Wait()
}

// serve serves one client that has a place.
func (l *listener) serve(conn net.Conn) {
	defer l.server.leave()
	if l.server.cfg.DropStopped {
		defer untilStopped(conn, l.server.limits.PingEvery, func() { conn.Close() })()
	}
	l.server.serve(l.server.newLineWire(conn), "")
}

// remove removes what the listener created on disk.
func (l *listener) remove() error {
	if l.http != nil {
		l.http.Close()
	}
	return l.dir.Remove()
}
