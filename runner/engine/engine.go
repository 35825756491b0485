package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// Names of engines.
const (
	Docker = "docker"
	Podman = "podman"
)

// Who makes an engine's cgroups: the engine, or systemd when the engine asks.
const (
	Cgroupfs = "cgroupfs"
	Systemd  = "systemd"
)

// Names are the engines that Find knows.
var Names = []string{Docker, Podman}

var (
	// ErrNotFound is wrapped by the error for a container that the engine does not have.
	ErrNotFound = errors.New("the engine has no such container")
	// ErrUnreachable is wrapped by the errors for an engine that does not answer.
	ErrUnreachable = errors.New("the engine does not answer")
	// ErrShared is wrapped by the error for a container that is in the cgroup of whoever
	// started it.
	ErrShared = errors.New("its engine gives it no cgroup of its own")
)

// Engine is an engine's API. Its methods are safe for concurrent use.
type Engine struct {
	Name   string
	Socket string
	client http.Client

	mu    sync.Mutex
	facts facts // what does not change; zero until the engine was asked
}

// facts are what an engine says about itself.
type facts struct {
	CgroupDriver string
	// Rootless is Podman's word for an engine of an ordinary user. Docker has none.
	Rootless bool
}

// Find finds the socket of an engine. An empty name means the first of Names that has a
// socket here. Docker's socket is where DOCKER_HOST says, else /var/run/docker.sock.
// Podman's is where CONTAINER_HOST says, else podman/podman.sock below /run,
// XDG_RUNTIME_DIR, or the directory of the user who called sudo. Find does not connect.
func Find(name string) (*Engine, error) {
	var tried []string
	for _, n := range Names {
		if name != "" && n != name {
			continue
		}
		sockets, err := sockets(n)
		if err != nil {
			return nil, err
		}
		for _, socket := range sockets {
			if info, err := os.Stat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
				return New(n, socket), nil
			}
			tried = append(tried, socket)
		}
	}
	if len(tried) == 0 {
		return nil, fmt.Errorf("unknown engine %q", name)
	}
	return nil, fmt.Errorf("%w: no socket at %s", ErrUnreachable, strings.Join(tried, " or "))
}

// userDirs has the directory of each user who is logged in, named by the user's id.
const userDirs = "/run/user"

// OfUsers are the sockets where ordinary users of this host run Podman's service.
func OfUsers() []string {
	found, _ := filepath.Glob(filepath.Join(userDirs, "*", "podman", "podman.sock"))
	return found
}

func sockets(name string) ([]string, error) {
	variable, known := "DOCKER_HOST", []string{"/var/run/docker.sock"}
	if name == Podman {
		variable, known = "CONTAINER_HOST", []string{"/run/podman/podman.sock"}
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			known = append(known, filepath.Join(dir, "podman", "podman.sock"))
		}
		if uid := os.Getenv("SUDO_UID"); uid != "" && !strings.Contains(uid, "/") {
			known = append(known, filepath.Join(userDirs, uid, "podman", "podman.sock"))
		}
	}
	host := os.Getenv(variable)
	if host == "" {
		return known, nil
	}
	socket, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, fmt.Errorf("%s is %q, but assay-run can use only an engine on this host, at unix://PATH", variable, host)
	}
	return []string{socket}, nil
}

// New returns the engine whose API is at a socket. It does not connect.
func New(name, socket string) *Engine {
	e := &Engine{Name: name, Socket: socket}
	e.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	return e
}

// Close closes idle connections.
func (e *Engine) Close() { e.client.CloseIdleConnections() }

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 8 << 20

// get requests path, which begins with a slash, and decodes the answer.
func (e *Engine) get(ctx context.Context, path string, query url.Values, into any) error {
	body, err := e.open(ctx, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("%s: read the answer to %s: %w", e.Name, path, err)
	}
	return nil
}

// open requests path and returns the answer's body.
func (e *Engine) open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return e.do(ctx, http.MethodGet, path, query, nil)
}

// do makes a request, in version 1.40 of the API: Docker 19.03 and Podman 3, and later
// versions, understand it.
func (e *Engine) do(ctx context.Context, method, path string, query url.Values, body any) (io.ReadCloser, error) {
	at := url.URL{Scheme: "http", Host: "engine", Path: "/v1.40" + path, RawQuery: query.Encode()}
	sent := []byte{}
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := e.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var urlError *url.Error
		if errors.As(err, &urlError) {
			err = urlError.Err
		}
		return nil, fmt.Errorf("%s: %w: %w", e.Name, ErrUnreachable, err)
	}
	if res.StatusCode/100 == 2 || res.StatusCode == http.StatusNotModified { // nothing to change
		return res.Body, nil
	}
	defer res.Body.Close()
	var said struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&said)
	err = errors.New(cmp.Or(said.Message, res.Status))
	if res.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %s (asked at %s)", ErrNotFound, said.Message, e.Socket)
	}
	return nil, fmt.Errorf("%s: %w", e.Name, err)
}

// Container is what an engine says about a container.
type Container struct {
	ID     string // 64 hex digits
	Name   string // without a slash
	Image  string // as its creator named it
	Labels map[string]string
	// PID is its first process. It is 0 while the container does not run.
	PID int
	// New means that the container was created and never started.
	New bool
	// asked means that the engine itself described it, and not an event.
	asked bool
	// parent is HostConfig.CgroupParent.
	parent string
	// active means that it runs, or that the engine may start it by itself.
	active bool
}

// Labels are the labels of a container's bundle.
func (e *Engine) Labels(c *Container) map[string]string {
	return map[string]string{"container_engine": e.Name, "container_id": c.ID, "container_name": c.Name, "container_image": c.Image}
}

// Container asks for a container, by its name or the beginning of its id.
func (e *Engine) Container(ctx context.Context, name string) (*Container, error) {
	var c struct {
		ID    string `json:"Id"`
		Name  string
		State struct {
			Status              string
			Pid                 int
			Running, Restarting bool
		}
		Config struct {
			Image  string
			Labels map[string]string
		}
		HostConfig struct {
			CgroupParent  string
			RestartPolicy struct{ Name string }
		}
	}
	if name == "" || strings.ContainsAny(name, "/?#%") {
		return nil, fmt.Errorf("%q is not the name or id of a container", name)
	}
	if err := e.get(ctx, "/containers/"+name+"/json", nil, &c); err != nil {
		return nil, err
	}
	return &Container{
		asked: true, ID: c.ID, Name: strings.TrimPrefix(c.Name, "/"), Image: c.Config.Image, Labels: c.Config.Labels,
		PID: c.State.Pid, New: c.State.Status == "created" || c.State.Status == "configured", parent: c.HostConfig.CgroupParent,
		active: c.State.Running || c.State.Restarting || cmp.Or(c.HostConfig.RestartPolicy.Name, "no") != "no",
	}, nil
}

// Cgroup is the path in the cgroup2 hierarchy where the engine will put a container. ok is
// false if that is not known before the start, as with the systemd driver. The error is
// ErrShared if the engine will make no cgroup for it.
func (e *Engine) Cgroup(ctx context.Context, c *Container) (at string, ok bool, err error) {
	known, err := e.ask(ctx)
	if err != nil {
		return "", false, err
	}
	if known.CgroupDriver != Cgroupfs || len(c.ID) != 64 {
		return "", false, nil
	}
	if e.Name == Podman {
		if known.Rootless && c.parent == "" { // see getOCICgroupPath in Podman's libpod
			if !c.asked { // it may have a parent, which an event does not name
				return "", false, nil
			}
			return "", false, ErrShared
		}
		return path.Join("/", cmp.Or(c.parent, "libpod_parent"), "libpod-"+c.ID), true, nil
	}
	return path.Join("/", cmp.Or(c.parent, "docker"), c.ID), true, nil
}

// CgroupDriver is Systemd or Cgroupfs.
func (e *Engine) CgroupDriver(ctx context.Context) (string, error) {
	known, err := e.ask(ctx)
	return known.CgroupDriver, err
}

// ask returns the engine's facts. The engine takes a while to answer, so the answer is kept.
func (e *Engine) ask(ctx context.Context) (facts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.facts.CgroupDriver == "" {
		var now facts
		if err := e.get(ctx, "/info", nil, &now); err != nil {
			return facts{}, err
		}
		e.facts = now
	}
	return e.facts, nil
}
