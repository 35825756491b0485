package engine

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/cgroup/role"
)

// Names of engines.
const (
	Docker = "docker"
	Podman = "podman"
)

// Cgroup drivers: the engine makes its cgroups itself, or asks systemd.
const (
	Cgroupfs = "cgroupfs"
	Systemd  = "systemd"
)

// Names are the engines that Find supports.
var Names = []string{Docker, Podman}

var (
	// ErrNotFound is wrapped by the error for a container that the engine does not have.
	ErrNotFound = errors.New("the engine has no such container")
	// ErrUnreachable is wrapped by the errors for an engine that does not answer.
	ErrUnreachable = errors.New("the engine does not answer")
	// ErrShared is wrapped by the error for a container that is in the cgroup of the process that started it.
	ErrShared = errors.New("its engine gives it no cgroup of its own")
)

// Engine is an engine's API. Its methods are safe for concurrent use.
type Engine struct {
	Name   string
	Socket string
	client http.Client

	mu    sync.Mutex
	facts facts // facts that do not change; zero before the first request
}

// facts are what an engine says about itself.
type facts struct {
	CgroupDriver string
	// Rootless is Podman's word for an engine of an ordinary user. Docker does not report it.
	Rootless bool
}

// Find finds the socket of an engine. An empty name means the first of Names that has a socket. Docker's socket is
// DOCKER_HOST, or else /var/run/docker.sock. Podman's is CONTAINER_HOST, or else podman/podman.sock below /run,
// XDG_RUNTIME_DIR, or the runtime directory of the user who called sudo. Find does not connect.
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

// userDirs has a directory for each user who is logged in, named by user id.
const userDirs = "/run/user"

// OfUsers lists the sockets where ordinary users of this host run Podman's service.
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
		return nil, fmt.Errorf("%s is %q, but assay-run can use only an engine on this host, at unix://PATH", variable,
			host)
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

// maxAnswer limits an answer, in bytes.
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

// head asks for the header of an answer.
func (e *Engine) head(ctx context.Context, path string, query url.Values) (http.Header, error) {
	res, err := e.answer(ctx, http.MethodHead, path, query, nil)
	if err != nil {
		return nil, err
	}
	return res.Header, res.Body.Close()
}

// do makes a request and returns the body of the answer.
func (e *Engine) do(ctx context.Context, method, path string, query url.Values, body any) (io.ReadCloser, error) {
	res, err := e.answer(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// answer makes a request in version 1.40 of the API, which Docker 19.03, Podman 3 and later versions understand.
func (e *Engine) answer(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
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
	if res.StatusCode/100 == 2 || res.StatusCode == http.StatusNotModified { // NotModified: nothing to do
		return res, nil
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
	// Workdir is where its commands start; empty means the root, and also if an event described the container.
	Workdir string
	// PID is its first process. It is 0 if the container does not run.
	PID int
	// New means that the container was created and never started.
	New bool
	// asked means that the engine's answer described it, not an event.
	asked bool
	// parent is HostConfig.CgroupParent.
	parent string
	// active means that it runs, or that the engine may start it on its own.
	active bool
}

// Labels returns the labels of a container's bundle.
func (e *Engine) Labels(c *Container) map[string]string {
	return map[string]string{
		"container_engine": e.Name, "container_id": c.ID, "container_name": c.Name, "container_image": c.Image,
	}
}

// Container asks for a container by name or by a prefix of its id.
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
			Image      string
			WorkingDir string
			Labels     map[string]string
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
		Workdir: c.Config.WorkingDir, PID: c.State.Pid,
		New:    c.State.Status == "created" || c.State.Status == "configured",
		parent: c.HostConfig.CgroupParent,
		active: c.State.Running || c.State.Restarting || cmp.Or(c.HostConfig.RestartPolicy.Name, "no") != "no",
	}, nil
}

// maxLinks limits the symbolic links of a name.
const maxLinks = 40

// File resolves the symbolic links in the name of a file in a container, and reports whether the file exists. The
// container need not run.
func (e *Engine) File(ctx context.Context, id, file string) (real string, exists bool, err error) {
	rest, links := path.Clean("/"+file), 0
	for real = "/"; rest != "/"; {
		name, after, _ := strings.Cut(rest[1:], "/")
		next := path.Join(real, name)
		var at struct {
			Mode       fs.FileMode `json:"mode"`
			LinkTarget string      `json:"linkTarget"`
		}
		header, err := e.head(ctx, "/containers/"+id+"/archive", url.Values{"path": {next}})
		switch {
		case errors.Is(err, ErrNotFound):
			return path.Join(real, rest), false, nil
		case err != nil:
			return "", false, err
		}
		text, err := base64.StdEncoding.DecodeString(header.Get("X-Docker-Container-Path-Stat"))
		if err == nil {
			err = json.Unmarshal(text, &at)
		}
		if err != nil {
			return "", false, fmt.Errorf("%s: what is %s: %w", e.Name, next, err)
		}
		if at.Mode&fs.ModeSymlink == 0 {
			real, rest = next, "/"+after
			continue
		}
		if links++; links > maxLinks || at.LinkTarget == "" {
			return path.Join(real, rest), false, nil
		}
		if !path.IsAbs(at.LinkTarget) {
			at.LinkTarget = path.Join(real, at.LinkTarget)
		}
		real, rest = "/", path.Join("/", at.LinkTarget, after)
	}
	return real, true, nil
}

// maxPrograms bounds the names of programs.
const maxPrograms = 20_000

// Programs returns the names in each directory of a container's PATH, as they are in its image. It returns none unless
// the engine keeps the image's layers in directories of this host that this process may read.
func (e *Engine) Programs(ctx context.Context, id string) (map[string][]string, error) {
	var c struct {
		Config      struct{ Env []string }
		GraphDriver struct{ Data struct{ LowerDir string } }
	}
	if err := e.get(ctx, "/containers/"+id+"/json", nil, &c); err != nil {
		return nil, err
	}
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" // Docker's default
	for _, kv := range c.Config.Env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	programs, left := map[string][]string{}, maxPrograms
	for _, dir := range filepath.SplitList(search) {
		real, exists, err := e.File(ctx, id, dir)
		if err != nil {
			return nil, err
		}
		if !exists || programs[real] != nil {
			continue
		}
		for _, layer := range filepath.SplitList(c.GraphDriver.Data.LowerDir) {
			entries, _ := os.ReadDir(filepath.Join(layer, real)) // few layers have the directory
			for _, entry := range entries[:min(len(entries), left)] {
				programs[real] = append(programs[real], entry.Name())
				left--
			}
		}
	}
	return programs, nil
}

// execIn returns the id of the container for a command of docker exec.
func (e *Engine) execIn(ctx context.Context, id string) (string, error) {
	if id == "" || strings.ContainsAny(id, "/?#%") {
		return "", fmt.Errorf("%q is not the id of a command", id)
	}
	var exec struct{ ContainerID string }
	err := e.get(ctx, "/exec/"+id+"/json", nil, &exec)
	return exec.ContainerID, err
}

// volume asks for a volume. local says that the engine keeps it in a directory of its own; users are the ids of the
// containers that have it, whether they run or not.
func (e *Engine) volume(ctx context.Context, name string) (local bool, users []string, err error) {
	var v struct {
		Driver  string
		Options map[string]string
	}
	if name == "" || strings.ContainsAny(name, "/?#%") {
		return false, nil, fmt.Errorf("%q is not the name of a volume", name)
	}
	if err := e.get(ctx, "/volumes/"+name, nil, &v); err != nil {
		return false, nil, err
	}
	filter, err := json.Marshal(map[string][]string{"volume": {name}})
	if err != nil {
		return false, nil, err
	}
	var list []struct {
		ID string `json:"Id"`
	}
	query := url.Values{"all": {"1"}, "filters": {string(filter)}}
	if err := e.get(ctx, "/containers/json", query, &list); err != nil {
		return false, nil, err
	}
	for _, c := range list {
		users = append(users, c.ID)
	}
	return v.Driver == "local" && len(v.Options) == 0, users, nil
}

// cgroup returns the path in the cgroup2 hierarchy where the engine will put a container. ok is false if the path is
// not known before the start, as with the systemd driver. The error is ErrShared if the engine will make no cgroup
// for it.
func (e *Engine) cgroup(ctx context.Context, c *Container) (at string, ok bool, err error) {
	known, err := e.ask(ctx)
	if err != nil {
		return "", false, err
	}
	if known.CgroupDriver != Cgroupfs || len(c.ID) != 64 {
		return "", false, nil
	}
	if e.Name == Podman {
		if known.Rootless && c.parent == "" { // see getOCICgroupPath in Podman's libpod
			if !c.asked { // it may have a parent that an event does not name
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

// ask returns the engine's facts. The answer takes a while, so it is cached.
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

// endTime limits how long End waits for an engine.
const endTime = 20 * time.Second

// Enter does the task that this process was started for. If that is to end containers, Enter ends them and exits. If
// the process was started through a link of StandIn, it becomes the client. Otherwise Enter returns.
func Enter() {
	beClient()
	role.Play(map[role.Role]func([]string) int{role.Containers: endMain})
}

func endMain(args []string) int {
	if len(args) != 4 {
		return 125
	}
	if _, err := End(context.Background(), args[2], args[3]); err != nil {
		return 1
	}
	return 0
}

// Afterwards is the command line for /proc/self/exe that does the work of End after the runner was killed. It is nil
// if Enter was not called.
func Afterwards(socket, parent string) []string {
	if !role.Containers.Available() {
		return nil
	}
	return role.Containers.Args(socket, parent)
}

// End stops the container with its stop signal, and with SIGKILL after the given seconds. It also keeps the engine
// from restarting it. End returns when the container has ended. A container that does not run or was removed is not
// an error.
func (e *Engine) End(ctx context.Context, id string, seconds int) error {
	body, err := e.do(ctx, http.MethodPost, "/containers/"+id+"/stop", url.Values{"t": {strconv.Itoa(seconds)}}, nil)
	if err == nil { // not before: Docker refuses to update a container that it is about to start
		body.Close()
		no := map[string]any{"RestartPolicy": map[string]string{"Name": "no"}}
		if body, err = e.do(ctx, http.MethodPost, "/containers/"+id+"/update", nil, no); err == nil {
			body.Close()
		}
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Below returns the containers with this cgroup parent that run or that the engine may restart. It skips containers
// that are removed meanwhile.
func (e *Engine) Below(ctx context.Context, parent string) (found []Container, err error) {
	var all []struct{ ID string }
	if err := e.get(ctx, "/containers/json", url.Values{"all": {"1"}}, &all); err != nil {
		return nil, err
	}
	for _, one := range all {
		c, err := e.Container(ctx, one.ID)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return found, err
		case c.parent == parent && c.active:
			found = append(found, *c)
		}
	}
	return found, nil
}

// End ends all containers with this cgroup parent but for those with the ids except, and keeps the Docker daemon at the
// socket from restarting them. It returns the containers that it ended.
func End(ctx context.Context, socket, parent string, except ...string) (ended []Container, err error) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	c := New(Docker, socket)
	defer c.Close()
	found, err := c.Below(ctx, parent)
	for _, one := range found {
		if slices.Contains(except, one.ID) {
			continue
		}
		if e := c.End(ctx, one.ID, 0); e != nil {
			err = errors.Join(err, e)
			continue
		}
		ended = append(ended, one)
	}
	return ended, err
}

// Event is something that happened to a container.
type Event struct {
	// Action is the engine's word: create, start, die, destroy and others. Podman says died and remove for the last
	// two.
	Action string
	ID     string
	Name   string
	Image  string
	// Labels are the container's, and what else the engine says of it.
	Labels map[string]string
}

// Events calls fn for every event of the containers that a filter selects, such as label KEY=VALUE or container ID.
// It calls listening once the engine will report everything from then on. It returns ctx's error, or ErrUnreachable
// when the engine ends the answer.
func (e *Engine) Events(ctx context.Context, filter, value string, listening func(), fn func(Event)) error {
	filters := map[string][]string{"type": {"container"}}
	// For Podman, a label without a value in an event filter is one whose value is empty.
	keyOnly := e.Name == Podman && filter == "label" && !strings.Contains(value, "=")
	if !keyOnly {
		filters[filter] = []string{value}
	}
	text, _ := json.Marshal(filters)
	body, err := e.open(ctx, "/events", url.Values{"filters": {string(text)}})
	if err != nil {
		return err
	}
	defer body.Close()
	listening()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		var ev struct {
			Action string
			Actor  struct {
				ID         string
				Attributes map[string]string
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return fmt.Errorf("%s: %w: read an event: %w", e.Name, ErrUnreachable, err)
		}
		if _, has := ev.Actor.Attributes[value]; keyOnly && !has {
			continue
		}
		fn(Event{Action: ev.Action, ID: ev.Actor.ID, Name: ev.Actor.Attributes["name"],
			Image: ev.Actor.Attributes["image"], Labels: ev.Actor.Attributes})
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF): // the second if the engine was killed
		err = errors.New("it stopped sending events")
	}
	return fmt.Errorf("%s: %w: %w", e.Name, ErrUnreachable, err)
}

// maxEvent limits an event, in bytes. An event contains the container's labels.
const maxEvent = 1 << 20

// List returns the ids of containers with the label that run, or were created and never started.
func (e *Engine) List(ctx context.Context, label string) (ids []string, err error) {
	text, _ := json.Marshal(map[string][]string{"label": {label}, "status": {"created", "running", "paused"}})
	var list []struct {
		ID string `json:"Id"`
	}
	if err := e.get(ctx, "/containers/json", url.Values{"all": {"true"}, "filters": {string(text)}},
		&list); err != nil {
		return nil, err
	}
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids, nil
}
