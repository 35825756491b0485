package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Relay is a second socket of a Docker daemon, for the command of a run. Containers that
// are made through it get a cgroup parent, unless the request names another one. Relay
// changes nothing else.
type Relay struct {
	daemon *Engine
	parent string
	asked  func(pid uint32, c *Container)
	socket *net.UnixListener

	mu     sync.Mutex
	open   map[*net.UnixConn]bool // nil once it is closed
	served sync.WaitGroup
}

// NewRelay listens at path. Whoever may use the daemon's socket may use this one too.
// When a process asks to start a container with that parent, NewRelay first calls asked,
// which must be safe for concurrent use. A pid of 0 is an unknown process.
func NewRelay(daemon *Engine, path, parent string, asked func(pid uint32, c *Container)) (*Relay, error) {
	info, err := os.Stat(daemon.Socket)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	r := &Relay{daemon: daemon, parent: parent, asked: asked, socket: l, open: map[*net.UnixConn]bool{}}
	mode := info.Mode().Perm()
	if st := info.Sys().(*syscall.Stat_t); os.Chown(path, int(st.Uid), int(st.Gid)) != nil {
		mode &= 0o700 // not root: only this user may use the socket
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, err
	}
	r.served.Go(r.accept)
	return r, nil
}

// Close ends all connections. It does not wait for the daemon.
func (r *Relay) Close() {
	r.socket.Close()
	r.mu.Lock()
	for c := range r.open {
		c.Close()
	}
	r.open = nil
	r.mu.Unlock()
	r.served.Wait()
}

func (r *Relay) accept() {
	for {
		c, err := r.socket.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files
			time.Sleep(100 * time.Millisecond)
		default:
			r.served.Go(func() { r.serve(c) })
		}
	}
}

// maxHeader bounds a request without its body, in bytes.
const maxHeader = 1 << 20

// maxOpen bounds the connections to clients and to the daemon together.
const maxOpen = 1024

// keep remembers a connection for Close to end. It returns false if the Relay is closed
// or has too many connections.
func (r *Relay) keep(c *net.UnixConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil || len(r.open) >= maxOpen {
		return false
	}
	r.open[c] = true
	return true
}

func (r *Relay) drop(c *net.UnixConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	c.Close()
}

// serve passes one connection on, until either side ends it.
func (r *Relay) serve(client *net.UnixConn) {
	defer r.drop(client)
	daemon, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.daemon.Socket, Net: "unix"})
	if err != nil {
		return
	}
	defer r.drop(daemon)
	if !r.keep(client) || !r.keep(daemon) {
		return
	}
	pid := peerPID(client)
	limited := &io.LimitedReader{R: client}
	from, back := bufio.NewReader(limited), bufio.NewReader(daemon)
	for {
		limited.N = maxHeader // Go has no limit of its own
		req, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		limited.N = math.MaxInt64
		req.Host = "docker" // some clients write a path, which Go does not
		if req.Header.Get("Expect") != "" {
			req.Header.Del("Expect")
			if _, err := io.WriteString(client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return
			}
		}
		if err := r.look(req, pid); err != nil {
			refuse(client, err)
			return
		}
		if !exchange(client, daemon, from, back, req) {
			return
		}
	}
}

// exchange passes on one request and its answer, and reports whether another request can
// follow. It returns when that one begins.
func exchange(client, daemon *net.UnixConn, from, back *bufio.Reader, req *http.Request) bool {
	var taken atomic.Bool
	next := make(chan error, 1)
	go func() { // the daemon may answer before it has read the whole request
		err := req.Write(daemon)
		if err == nil {
			if _, err = from.Peek(1); err != nil && !taken.Load() {
				_ = daemon.CloseWrite() // its client may have gone: it ends a build, for example
			}
		}
		next <- err
	}()
	res, err := answer(back, req)
	if err == nil && raw(res) {
		taken.Store(true)
		pass(client, daemon, from, back, res, next)
		return false
	}
	if err == nil {
		err = res.Write(client)
		res.Body.Close()
	}
	if err != nil || res.Close || req.Close {
		_ = client.CloseWrite()
		_ = client.CloseRead()
		daemon.Close()
		<-next
		return false
	}
	return <-next == nil
}

// answer reads the answer to a request, and skips interim (1xx) answers.
func answer(from *bufio.Reader, req *http.Request) (*http.Response, error) {
	for {
		res, err := http.ReadResponse(from, req)
		if err != nil || res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			return res, err
		}
	}
}

// raw reports whether the connection is no longer HTTP after this answer, but a
// container's terminal or streams.
func raw(res *http.Response) bool {
	return res.StatusCode == http.StatusSwitchingProtocols ||
		res.StatusCode == http.StatusOK && res.Request.Method == http.MethodPost && res.ContentLength < 0 &&
			strings.HasPrefix(res.Header.Get("Content-Type"), "application/vnd.docker.") &&
			len(res.TransferEncoding) == 0
}

// pass copies what both sides write, until both have ended. The client's bytes begin once
// next is received.
func pass(client, daemon *net.UnixConn, from, back *bufio.Reader, res *http.Response, next <-chan error) {
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %s\r\n", res.Status)
	_ = res.Header.Write(&head)
	head.WriteString("\r\n")
	_, err := client.Write(head.Bytes())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if <-next == nil {
			_, _ = io.Copy(daemon, from)
		}
		_ = daemon.CloseWrite()
	}()
	if err == nil {
		_, err = io.Copy(client, back)
	}
	if err != nil { // the client is gone
		daemon.Close()
		_ = client.CloseRead()
	}
	_ = client.CloseWrite()
	<-ended
}

// peerPID is the process at the other end. It is 0 if unknown.
func peerPID(c *net.UnixConn) (pid uint32) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = uint32(cred.Pid)
		}
	})
	return pid
}

// maxRequest bounds the description of a container to create, in bytes.
const maxRequest = 1 << 20

// lookTime bounds how long the relay asks the daemon about a container before its start.
const lookTime = 10 * time.Second

var (
	creates = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/v[0-9.]+)?/containers/create$`) })
	starts  = sync.OnceValue(
		func() *regexp.Regexp { return regexp.MustCompile(`^(/v[0-9.]+)?/containers/([^/]+)/(start|restart)$`) },
	)
)

// errAmbiguous: the daemon may understand a description otherwise than we do.
var errAmbiguous = errors.New("the key appears twice")

// look sees what a request asks for, and gives a container that is to be made its
// cgroup parent. The error says why the request cannot be passed on.
func (r *Relay) look(req *http.Request, pid uint32) error {
	if req.Method != http.MethodPost {
		return nil
	}
	if creates().MatchString(req.URL.Path) {
		body, err := io.ReadAll(io.LimitReader(req.Body, maxRequest+1))
		if err != nil {
			return err
		}
		if len(body) > maxRequest {
			return fmt.Errorf("the description of the container is longer than %d bytes", maxRequest)
		}
		if body, err = withCgroupParent(body, r.parent); err != nil {
			return fmt.Errorf("the description of the container is ambiguous: %w", err)
		}
		req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		return nil
	}
	if m := starts().FindStringSubmatch(req.URL.Path); m != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		if c, err := r.daemon.Container(ctx, m[2]); err == nil && c.parent == r.parent {
			r.asked(pid, c)
		}
	}
	return nil
}

// refuse answers a request that is not passed on, as the daemon does.
func refuse(client io.Writer, why error) {
	body, err := json.Marshal(map[string]string{"message": "assay-run: " + why.Error()})
	if err == nil {
		_, _ = fmt.Fprintf(
			client,
			"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: "+
				"%d\r\nConnection: close\r\n\r\n%s",
			len(body), body,
		)
	}
}

// withCgroupParent is the description of a container with a cgroup parent, if it has
// none. What is no such description stays as it is: the daemon says so. The daemon reads
// keys in upper and lower case, and only the first value.
func withCgroupParent(body []byte, parent string) ([]byte, error) {
	all, err := object(body, "HostConfig")
	if err != nil {
		return nil, err
	}
	if all == nil {
		return body, nil
	}
	host := map[string]json.RawMessage{}
	if h := all["HostConfig"]; h != nil && string(h) != "null" {
		if host, err = object(h, "CgroupParent"); err != nil {
			return nil, err
		}
		if host == nil {
			return body, nil
		}
	}
	own := ""
	if json.Unmarshal(host["CgroupParent"], &own); own != "" {
		return body, nil
	}
	if host["CgroupParent"], err = json.Marshal(parent); err != nil {
		return nil, err
	}
	if all["HostConfig"], err = json.Marshal(host); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// object is the first value of a text, with one key spelled as it is here; nil if it is
// not an object. The error is errAmbiguous.
func object(text []byte, key string) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil
	}
	o := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || d.Decode(&value) != nil {
			return nil, nil
		}
		if strings.EqualFold(name, key) {
			name = key
		}
		if _, twice := o[name]; twice {
			return nil, fmt.Errorf("%q: %w", name, errAmbiguous)
		}
		o[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, nil
	}
	return o, nil
}
