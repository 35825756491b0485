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

// Names are the engines that Find knows.
var Names = []string{Docker, Podman}

var (
	// ErrNotFound is wrapped by Container's error for one that the engine does not have.
	ErrNotFound = errors.New("the engine has no such container")
	// ErrUnreachable is wrapped by errors of an engine that does not answer.
	ErrUnreachable = errors.New("the engine does not answer")
)

// Engine is an engine's API. Its methods are safe for concurrent use.
type Engine struct {
	Name   string
	Socket string
	client http.Client

	mu     sync.Mutex
	driver string // of cgroups; empty until it was asked for
}

// Find finds the socket of an engine; empty stands for the first of Names that has one
// here. Docker's is where DOCKER_HOST says, else /var/run/docker.sock; Podman's is
// where CONTAINER_HOST says, else podman/podman.sock below /run or XDG_RUNTIME_DIR.
// Nothing is asked yet.
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

func sockets(name string) ([]string, error) {
	variable, known := "DOCKER_HOST", []string{"/var/run/docker.sock"}
	if name == Podman {
		variable, known = "CONTAINER_HOST", []string{"/run/podman/podman.sock"}
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			known = append(known, filepath.Join(dir, "podman", "podman.sock"))
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

// New is the engine with its API at a socket.
func New(name, socket string) *Engine {
	e := &Engine{Name: name, Socket: socket}
	e.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	return e
}

// Close closes connections that are not in use.
func (e *Engine) Close() { e.client.CloseIdleConnections() }

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 8 << 20

// get asks for path, which begins with a slash, and decodes the answer.
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

// open asks for path and gives the answer's body.
func (e *Engine) open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return e.do(ctx, http.MethodGet, path, query, nil)
}

// do makes a request. 1.40 is what Docker 19.03 and later and Podman 3 and later
// understand.
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
	if res.StatusCode/100 == 2 || res.StatusCode == http.StatusNotModified { // it is so already
		return res.Body, nil
	}
	defer res.Body.Close()
	var said struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&said)
	err = errors.New(cmp.Or(said.Message, res.Status))
	if res.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %s", ErrNotFound, said.Message)
	}
	return nil, fmt.Errorf("%s: %w", e.Name, err)
}

// Container is what an engine tells of a container.
type Container struct {
	ID     string // 64 hex digits
	Name   string // without a slash
	Image  string // as its creator named it
	Labels map[string]string
	// PID is its first process; 0 while it does not run.
	PID int
	// New says that it was created and never started.
	New bool
	// parent is HostConfig.CgroupParent.
	parent string
	// active: it runs, or the engine may start it by itself.
	active bool
}

// Container asks for one, by its name or the beginning of its id.
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
		ID: c.ID, Name: strings.TrimPrefix(c.Name, "/"), Image: c.Config.Image, Labels: c.Config.Labels,
		PID: c.State.Pid, New: c.State.Status == "created" || c.State.Status == "configured", parent: c.HostConfig.CgroupParent,
		active: c.State.Running || c.State.Restarting || cmp.Or(c.HostConfig.RestartPolicy.Name, "no") != "no",
	}, nil
}

// Cgroup is the path, in the cgroup2 hierarchy, that the engine will put a container
// at; ok is false where that is not known before: with the systemd driver.
func (e *Engine) Cgroup(ctx context.Context, c *Container) (at string, ok bool, err error) {
	driver, err := e.cgroupDriver(ctx)
	if err != nil {
		return "", false, err
	}
	if driver != "cgroupfs" || len(c.ID) != 64 {
		return "", false, nil
	}
	if e.Name == Podman {
		return path.Join("/", cmp.Or(c.parent, "libpod_parent"), "libpod-"+c.ID), true, nil
	}
	return path.Join("/", cmp.Or(c.parent, "docker"), c.ID), true, nil
}

// cgroupDriver is systemd or cgroupfs. It takes the engine a while to tell, and does not
// change.
func (e *Engine) cgroupDriver(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.driver == "" {
		var info struct{ CgroupDriver string }
		if err := e.get(ctx, "/info", nil, &info); err != nil {
			return "", err
		}
		e.driver = info.CgroupDriver
	}
	return e.driver, nil
}
