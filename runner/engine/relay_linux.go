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
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Relay is a second socket of a Docker daemon, for the command of a run. Containers that are made through it get a
// cgroup parent, unless the request names another one. Relay changes nothing else. It refuses requests whose path the
// daemon would rewrite.
//
// It decodes requests with encoding/json, as the daemon does; no other file of assay-run uses that package. Names
// match in any case, and a request that the two decode differently could hide its cgroup parent.
type Relay struct {
	daemon *Engine
	parent string
	watch  Watch
	socket *net.UnixListener

	mu     sync.Mutex
	open   map[*net.UnixConn]bool // nil once closed
	served sync.WaitGroup
}

// Watch gets the requests that clients send to a Relay, before the daemon does. Its functions must be safe for
// concurrent use. A pid of 0 is an unknown process.
type Watch struct {
	// Starting is called before a container with the Relay's cgroup parent starts.
	Starting func(pid uint32, c *Container)
	// Started is called once such a container has started, before its client knows.
	Started func(c *Container)
	// Outside is called with the method and target of a request that may create or start
	// something without that parent.
	Outside func(pid uint32, line string)
}

// NewRelay listens at the path at. Everyone who may use the daemon's socket may use this one.
func NewRelay(daemon *Engine, at, parent string, watch Watch) (*Relay, error) {
	info, err := os.Stat(daemon.Socket)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, err
	}
	r := &Relay{daemon: daemon, parent: parent, watch: watch, socket: l, open: map[*net.UnixConn]bool{}}
	mode := info.Mode().Perm()
	if st := info.Sys().(*syscall.Stat_t); os.Chown(at, int(st.Uid), int(st.Gid)) != nil {
		mode &= 0o700 // without root, only this user may use the socket
	}
	if err := os.Chmod(at, mode); err != nil {
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

// maxHeader limits a request without its body, in bytes.
const maxHeader = 1 << 20

// maxOpen limits the connections to clients and to the daemon together.
const maxOpen = 1024

// keep registers a connection for Close. It reports false if the Relay is closed or has too many connections.
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

// serve relays one connection until either side ends it.
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
		req.Host = "docker" // some clients send a path, which Go refuses to send
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
		if !exchange(client, daemon, from, back, req, func() { r.started(req) }) {
			return
		}
	}
}

// exchange relays one request and its answer, and reports whether another request can follow. It returns when that
// one starts. It calls done before it passes on the answer that the daemon has done what was asked.
func exchange(client, daemon *net.UnixConn, from, back *bufio.Reader, req *http.Request, done func()) bool {
	var taken atomic.Bool
	next := make(chan error, 1)
	go func() { // the daemon may answer before it has read the whole request
		err := req.Write(daemon)
		if err == nil {
			if _, err = from.Peek(1); err != nil && !taken.Load() {
				_ = daemon.CloseWrite() // the client is gone, which ends a build, for example
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
		if res.StatusCode/100 == 2 {
			done()
		}
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

// raw reports whether the connection is no longer HTTP after this answer, but a container's terminal or streams.
func raw(res *http.Response) bool {
	return res.StatusCode == http.StatusSwitchingProtocols ||
		res.StatusCode == http.StatusOK && res.Request.Method == http.MethodPost && res.ContentLength < 0 &&
			strings.HasPrefix(res.Header.Get("Content-Type"), "application/vnd.docker.") &&
			len(res.TransferEncoding) == 0
}

// pass copies in both directions, until both sides have ended. It starts with the client's bytes once next has
// received.
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

// peerPID returns the process at the other end; 0: unknown.
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

// maxRequest limits the description of a container to create, in bytes.
const maxRequest = 1 << 20

// lookTime limits how long the relay asks the daemon about a container before it starts.
const lookTime = 10 * time.Second

// request is a request by its path. A name can have slashes: Docker also knows a container by the name of one that is
// linked to it (box/alias).
type request struct{ kind, name, verb string }

var requests = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:/v[0-9.]+)?/([a-z]+)(?:/(.+?))??(?:/(attach/ws|[^/]+))?$`)
})

// requested parses the path of a request.
func requested(req *http.Request) (is request) {
	m := requests().FindStringSubmatch(req.URL.Path)
	switch {
	case m == nil:
	case m[2] == "": // a single part is the name
		is = request{m[1], m[3], ""}
	case req.Method == http.MethodDelete: // DELETE has no verbs
		is = request{m[1], m[2] + "/" + m[3], ""}
	default:
		is = request{m[1], m[2], m[3]}
	}
	return is
}

// errAmbiguous means that the daemon may read a description differently.
var errAmbiguous = errors.New("the key appears twice")

// look inspects a request, and adds the cgroup parent if the request creates a container. The error says why the
// request cannot be passed on.
func (r *Relay) look(req *http.Request, pid uint32) error {
	if p := req.URL.Path; p != "" && p != "*" && path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/" {
		return fmt.Errorf("the engine has no path with //, . or .. in it, such as %q", p)
	}
	is := requested(req)
	if is == (request{"containers", "create", ""}) && req.Method == http.MethodPost {
		return r.create(req, pid)
	}
	if !r.within(req, is, pid) && r.watch.Outside != nil {
		r.watch.Outside(pid, line(req))
	}
	return nil
}

// create inspects the description of a container to create.
func (r *Relay) create(req *http.Request, pid uint32) error {
	body, err := description(req)
	if err != nil {
		return err
	}
	if body, err = withCgroupParent(body, r.parent); err != nil {
		return fmt.Errorf("the description of the container is ambiguous: %w", err)
	}
	if !r.describesOurs(body) && r.watch.Outside != nil {
		r.watch.Outside(pid, line(req))
	}
	req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return nil
}

// description returns the body of a request.
func description(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxRequest+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxRequest {
		return nil, fmt.Errorf("the description is longer than %d bytes", maxRequest)
	}
	return body, nil
}

// peek decodes the body of a request, and leaves the body unread.
func peek(req *http.Request, into any) error {
	body, err := description(req)
	if err != nil {
		return err
	}
	req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return json.NewDecoder(bytes.NewReader(body)).Decode(into)
}

// maxLine limits the recorded line of a request, in bytes.
const maxLine = 300

func line(req *http.Request) string {
	l := req.Method + " " + req.URL.RequestURI()
	if len(l) > maxLine {
		l = l[:maxLine] + "…"
	}
	return l
}

// within reports whether a request makes and starts only what is in containers with the relay's cgroup parent. An
// unknown request may do anything.
func (r *Relay) within(req *http.Request, is request, pid uint32) bool {
	if req.Header.Get("Upgrade") != "" && !streams(is) { // to a protocol that the relay cannot read
		return false
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		// These requests only read, except for input to a container, and those that the daemon sends on to a registry.
		// The daemon itself reads the files of a container, and starts ps for its processes.
		switch {
		case is.kind == "containers" && is.verb == "attach/ws":
			return r.isOurs(is.name)
		case req.Method == http.MethodGet && is.kind == "containers" &&
			slices.Contains([]string{"archive", "export", "top"}, is.verb):
			return false
		case is.kind == "distribution", is.kind == "images" && is.name == "search",
			is.kind == "plugins" && is.name == "privileges", is.kind == "libpod":
			return false
		}
		return true
	case http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		return false
	}
	switch is.kind {
	case "networks":
		return r.withinNetworks(req, is)
	case "volumes":
		return req.Method == http.MethodDelete && is.name != "prune"
	case "images":
		return req.Method == http.MethodDelete || is.verb == "tag"
	case "exec":
		return is.verb == "resize" || is.verb == "start" && r.isOursExec(is.name)
	case "containers":
		switch is.verb {
		case "wait", "resize": // of a terminal
			return true
		case "start", "restart":
			return r.starting(req, is.name, pid)
		case "", "attach", "exec", "kill", "pause", "rename", "stop", "unpause", "update":
			return is.name != "prune" && r.isOurs(is.name)
		}
	}
	return false
}

// streams reports whether a request turns its connection into the streams of a container.
func streams(is request) bool {
	return is.kind == "containers" && (is.verb == "attach" || is.verb == "attach/ws") ||
		is.kind == "exec" && is.verb == "start"
}

// Drivers of networks, and of their addresses, that are not separate programs.
var (
	localNetworks  = []string{"", "bridge", "host", "ipvlan", "macvlan", "none", "null"}
	localAddresses = []string{"", "default", "null"}
)

// withinNetworks reports whether a request about networks, which have no processes, does not change other containers.
func (r *Relay) withinNetworks(req *http.Request, is request) bool {
	var what struct {
		Driver, Container string

		IPAM struct{ Driver string }
	}
	switch {
	case req.Method != http.MethodPost:
		return true
	case is.verb == "connect", is.verb == "disconnect":
		return peek(req, &what) == nil && r.isOurs(what.Container)
	case is.name == "create":
		return peek(req, &what) == nil && slices.Contains(localNetworks, what.Driver) &&
			slices.Contains(localAddresses, what.IPAM.Driver)
	}
	return false
}

// shortest is the length of the shortest description that a daemon accepts, in bytes.
const shortest = 8

// starting calls Watch.Starting for a container that is about to start. It reports whether the container is the
// relay's and starts as described: not from a checkpoint, which another program restores, and not with a new
// description, which daemons before version 25 accept from old clients.
func (r *Relay) starting(req *http.Request, name string, pid uint32) bool {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	c, err := r.daemon.Container(ctx, name)
	if err != nil || c.parent != r.parent {
		return errors.Is(err, ErrNotFound)
	}
	r.watch.Starting(pid, c)
	return req.ContentLength >= 0 && req.ContentLength < shortest && !req.URL.Query().Has("checkpoint")
}

// started tells of a container that has started.
func (r *Relay) started(req *http.Request) {
	is := requested(req)
	if r.watch.Started == nil || req.Method != http.MethodPost || is.kind != "containers" ||
		is.verb != "start" && is.verb != "restart" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	if c, err := r.daemon.Container(ctx, is.name); err == nil && c.parent == r.parent && c.PID != 0 {
		r.watch.Started(c)
	}
}

// isOurs reports whether a container has the relay's cgroup parent, or does not exist.
func (r *Relay) isOurs(name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	c, err := r.daemon.Container(ctx, name)
	return err == nil && c.parent == r.parent || errors.Is(err, ErrNotFound)
}

// isOurVolume reports whether the daemon keeps a volume in a directory of its own, and only containers of the relay's
// use it, or whether the volume does not exist.
func (r *Relay) isOurVolume(name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	local, users, err := r.daemon.volume(ctx, name)
	return err == nil && local && !slices.ContainsFunc(users, func(id string) bool { return !r.isOurs(id) }) ||
		errors.Is(err, ErrNotFound)
}

// isOursExec reports whether a command will be executed in a container of the relay's, or does not exist.
func (r *Relay) isOursExec(id string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	name, err := r.daemon.execIn(ctx, id)
	return err == nil && r.isOurs(name) || errors.Is(err, ErrNotFound)
}

// What the daemon does itself for a container: write its output to a file, start its processes, and make a volume
// that is a directory.
var (
	localLogs      = []string{"", "json-file", "local", "none"}
	localRuntimes  = []string{"", "crun", "io.containerd.runc.v2", "runc"}
	localVolumes   = []string{"", "local"}
	describedMount = []string{"", "bind", "image", "tmpfs", "volume"}
)

// describesOurs reports whether a described container has the relay's cgroup parent, uses nothing of a container with
// another parent, and is served only by the daemon's own host: a log or volume driver, or a runtime, could pass its
// data or processes to another host or cgroup. For published ports the daemon starts a proxy outside the cgroup, and
// for requested devices (GPUs) a program that provides them.
func (r *Relay) describesOurs(body []byte) bool {
	var c struct {
		HostConfig struct {
			CgroupParent, NetworkMode, PidMode, IpcMode, UTSMode, Cgroup, Runtime, VolumeDriver string

			PublishAllPorts    bool
			PortBindings       map[string]any
			DeviceRequests     []any
			Binds, VolumesFrom []string

			LogConfig struct{ Type string }
			Mounts    []struct {
				Type, Source string

				VolumeOptions struct {
					DriverConfig struct {
						Name    string
						Options map[string]string
					}
				}
			}
		}
	}
	// The daemon also uses the first value.
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&c); err != nil || c.HostConfig.CgroupParent != r.parent {
		return false
	}
	h := &c.HostConfig
	if !slices.Contains(localLogs, h.LogConfig.Type) || !slices.Contains(localRuntimes, h.Runtime) ||
		!slices.Contains(localVolumes, h.VolumeDriver) ||
		h.PublishAllPorts || len(h.PortBindings)+len(h.DeviceRequests) > 0 {
		return false
	}
	for _, m := range h.Mounts {
		driver := &m.VolumeOptions.DriverConfig
		if !slices.Contains(describedMount, m.Type) || !slices.Contains(localVolumes, driver.Name) ||
			len(driver.Options) > 0 || m.Type == "volume" && m.Source != "" && !r.isOurVolume(m.Source) {
			return false
		}
	}
	for _, bind := range h.Binds {
		from, _, named := strings.Cut(bind, ":")
		if named && !strings.HasPrefix(from, "/") && !r.isOurVolume(from) {
			return false
		}
	}
	for _, from := range h.VolumesFrom {
		name, _, _ := strings.Cut(from, ":")
		if !r.isOurs(name) {
			return false
		}
	}
	for _, mode := range []string{h.NetworkMode, h.PidMode, h.IpcMode, h.UTSMode, h.Cgroup} {
		if name, ok := strings.CutPrefix(mode, "container:"); ok && !r.isOurs(name) {
			return false
		}
	}
	return true
}

// refuse answers a request that is not passed on, in the daemon's form.
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

// withCgroupParent adds the cgroup parent to the description of a container that has none. Any other body stays
// unchanged, and the daemon refuses it. The daemon reads keys in any case, and uses only the first value.
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

// object returns the first value of a text, with key spelled as given; nil if it is not an object. The error is
// errAmbiguous.
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
