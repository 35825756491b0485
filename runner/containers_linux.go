package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/container"
	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/place"
	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/sandboxfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// askEngine limits how long an engine is asked for the names of containers.
const askEngine = 2 * time.Second

// askDriver limits how long Docker is asked for its cgroup driver. A daemon that has just started needs time.
const askDriver = 20 * time.Second

// containers manages the containers that the command starts. An engine starts their processes, so they are not
// descendants of the command. The containers end with the run.
type containers struct {
	log     *evidence.Log
	session *containment
	limits  specfile.Limits
	use     bool   // specfile.Spec.Containers
	path    string // the command's PATH
	inside  *confinement
	dir     *rundir.Dir // has the socket, and the directory that comes first in the command's PATH; nil without use
	socket  string      // of the Docker daemon; empty: this host has none
	relay   *engine.Relay
	asked   *containerStarters
	placed  *evaluationPart
	gateway *sandbox.Door // of models; nil: there is none

	parent   string
	had      bool // the run had containers, even if they are gone
	checking atomic.Bool
	outside  askedOutside
	direct   []string           // engine sockets that the run connected to; the observation's goroutine writes it
	stayed   []schema.Container // containers that outlived the command
	kept     []string           // the ids of those with servers that are kept for the checks
	reasons  []schema.Reason
}

func newContainers(log *evidence.Log, spec *specfile.Spec, session *containment, inside *confinement,
	placed *evaluationPart) *containers {
	env := environ(spec)
	path, _ := lookupEnv(env, "PATH")
	return &containers{
		asked: &containerStarters{log: log, of: map[string][]containerStarter{}},
		log:   log, session: session, limits: spec.Limits, use: spec.Containers, path: path,
		inside: inside, socket: engine.Socket(env), placed: placed,
	}
}

// open makes the guard end the containers if this process is killed. If the spec says so, it puts new containers into
// the run.
func (c *containers) open(context.Context) error {
	if _, err := os.Stat(c.socket); err != nil {
		c.socket = ""
	}
	if c.parent = c.session.CgroupParent(); c.parent != "" && c.socket != "" {
		c.session.last(engine.Afterwards(c.socket, c.parent))
		_ = c.session.Note(c.socket) // for a sweep of a session without a guard
	}
	if !c.use {
		return nil
	}
	if err := c.standIn(); err != nil {
		return sandboxError(schema.CodeContainers, fmt.Errorf("put containers into the run: %w", err))
	}
	return nil
}

// bySystemd reports whether systemd makes Docker's cgroups. The run's cgroup must then be a slice.
func (c *containers) bySystemd(ctx context.Context) bool {
	if !c.use {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askDriver)
	defer cancel()
	docker := engine.New(engine.Docker, c.socket)
	defer docker.Close()
	driver, err := docker.CgroupDriver(ctx)
	return err == nil && driver == engine.Systemd
}

// standIn puts a program of assay-run before podman, and a socket before Docker's.
func (c *containers) standIn() error {
	if p := c.inside.profile; p != nil && p.Mode != sandboxfile.Observe {
		return errors.New("a command in a sandbox cannot reach the engine: use --mode observe")
	}
	if c.parent == "" {
		return fmt.Errorf("the run has no cgroup of its own; %s", place.Here().Cgroups())
	}
	var err error
	if c.dir, err = rundir.Open(); err != nil {
		return err
	}
	c.session.outlive(c.dir.Path)
	if err := errors.Join(os.Mkdir(c.programs(), 0o755), os.Chmod(c.programs(), 0o755)); err != nil {
		return err
	}
	podman, err := engine.StandIn(c.programs(), c.path)
	if err != nil || podman && c.socket == "" {
		return err
	}
	if c.socket == "" {
		return errors.New("podman is not in PATH, and there is no Docker daemon on this host: set " +
			"DOCKER_HOST=unix://... to its socket")
	}
	at := c.dockerSocket()
	starting := func(pid uint32, at *engine.Container) {
		c.asked.ask(pid, at)
		if !c.checking.Load() {
			c.placed.starting(c.socket, at.ID)
		}
	}
	watch := engine.Watch{Starting: starting, Started: c.connect, Outside: func(pid uint32, line string) {
		if !c.checking.Load() { // nothing of the command runs beside a check
			c.outside.add(pid, line)
		}
	}}
	if c.relay, err = engine.NewRelay(engine.New(engine.Docker, c.socket), at, c.parent, watch); err != nil {
		return err
	}
	return nil
}

// reach makes a server of the runner's reachable from the containers that start from now on; nil for none.
func (c *containers) reach(gateway *sandbox.Door) { c.gateway = gateway }

// connect gives a container that has started a way to the server: a listener at the server's address in its own network
// namespace. A container in the host's has it already.
func (c *containers) connect(at *engine.Container) {
	if c.gateway == nil || c.checking.Load() {
		return
	}
	l, err := listenIn(fmt.Sprintf("/proc/%d/ns/net", at.PID), c.gateway.Address)
	switch {
	case err == nil:
		c.gateway.Serve(l)
	case errors.Is(err, unix.EADDRINUSE): // it has the namespace of the host, or of a container that started before
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH): // it has ended
	default:
		c.log.Event(schema.Event{Type: schema.RecorderError, Code: "container_without_gateway",
			Message: fmt.Sprintf("the container %s cannot reach the model gateway: %v", at.Name, err)})
	}
}

// listenIn listens at an address in a network namespace.
func listenIn(ns, address string) (l net.Listener, err error) {
	fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp", address)
		}
	}()
	<-done
	return l, err
}

// sockets are assay-run's own sockets that the command connects to, as kernel events name them.
func (c *containers) sockets() []string {
	if c.relay == nil {
		return nil
	}
	return []string{"unix:" + c.dockerSocket()}
}

// starter is [layer.Options].Starter.
func (c *containers) starter(id string, t uint64) (pid uint32, at uint64) {
	return c.asked.starter(id, t)
}

// programs is the directory of the link named podman.
func (c *containers) programs() string { return filepath.Join(c.dir.Path, "bin") }

// dockerSocket is the socket that the command uses as Docker's.
func (c *containers) dockerSocket() string { return filepath.Join(c.dir.Path, "docker.sock") }

// shape sets the command's environment so that its containers start in the run.
func (c *containers) shape(cmd *exec.Cmd) {
	if c.parent != "" {
		cmd.Env = append(cmd.Env, EnvCgroupParent+"="+c.parent)
	}
	set := func(key, value string) {
		cmd.Env = append(slices.DeleteFunc(cmd.Env, func(kv string) bool {
			return strings.HasPrefix(kv, key+"=")
		}), key+"="+value)
	}
	if c.dir != nil {
		path, _ := lookupEnv(cmd.Env, "PATH")
		set("PATH", c.programs()+string(filepath.ListSeparator)+path)
	}
	if c.relay != nil {
		set("DOCKER_HOST", "unix://"+c.dockerSocket())
	}
}

// check gives a contract's check what the command has to reach its engine, until done is called. A check that follows
// the command may make containers again, unlike what the command left. What a check leaves ends with it.
func (c *containers) check(ctx context.Context, env []string) (with []string, done func()) {
	if c.session.Session == nil {
		return env, func() {}
	}
	end := func() {
		if c.relay != nil && c.session.HadContainers() {
			_, _ = engine.End(ctx, c.socket, c.parent, c.kept...) // close says if this fails
		}
	}
	end()
	c.session.AllowContainers()
	cmd := &exec.Cmd{Env: slices.Clone(env)}
	c.shape(cmd)
	c.checking.Store(true)
	return cmd.Env, func() { end(); c.checking.Store(false) }
}

// present lists the containers in the session.
func (c *containers) present() (list []schema.Container) {
	for _, path := range c.session.Containers() {
		if at, ok := container.Of(path); ok && !slices.ContainsFunc(list, func(o schema.Container) bool {
			return o.ID == at.ID
		}) {
			list = append(list, schema.Container{ID: at.ID, Engine: at.Engine})
		}
	}
	return list
}

// outlived records the containers that outlived the command, but for those that are kept for the checks. It asks for
// their names at once, since the engine may forget them soon.
func (c *containers) outlived(kept []string) {
	c.kept = kept
	c.stayed = slices.DeleteFunc(c.present(), func(at schema.Container) bool { return slices.Contains(kept, at.ID) })
	if len(c.stayed) == 0 || c.socket == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askEngine)
	defer cancel()
	client := engine.New(engine.Docker, c.socket)
	defer client.Close()
	for i := range c.stayed {
		if known, err := client.Container(ctx, c.stayed[i].ID); err == nil {
			c.stayed[i].Engine, c.stayed[i].Name, c.stayed[i].Image = container.Docker, known.Name, known.Image
		}
	}
}

// close keeps the engine from starting the containers again. It is called when no process of the run is left.
func (c *containers) close() error {
	if c.relay != nil {
		c.relay.Close()
	}
	_ = c.dir.Remove()
	if c.session.Session == nil || !c.session.HadContainers() {
		return nil
	}
	c.had = true
	// A Docker container that is about to restart has no process and no cgroup at this moment. Podman's restart runs
	// inside the session, and has ended.
	var err error
	if c.socket != "" {
		var ended []engine.Container
		ended, err = engine.End(context.Background(), c.socket, c.parent)
		for _, e := range ended {
			if !slices.Contains(c.kept, e.ID) && !slices.ContainsFunc(c.stayed, func(o schema.Container) bool {
				return o.ID == e.ID
			}) {
				c.stayed = append(c.stayed,
					schema.Container{ID: e.ID, Engine: container.Docker, Name: e.Name, Image: e.Image})
			}
		}
	} else if slices.ContainsFunc(c.stayed, func(o schema.Container) bool { return o.Engine != container.Podman }) {
		err = errors.New("there is no Docker socket to ask")
	}
	if len(c.stayed) > 0 {
		c.log.Event(schema.Event{Type: schema.ContainersEnded, Count: int64(len(c.stayed)),
			Containers: c.stayed[:min(len(c.stayed), maxLeftoversNamed)]})
	}
	if err != nil {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "cgroup", Code: "containers_may_restart",
			Message: fmt.Sprintf("assay-run ended the containers that the run left, but their engine may start them "+
				"again outside of the run: %v", err),
			Remedy: "remove them with docker rm --force; for another daemon, set DOCKER_HOST=unix://... for assay-run",
		})
	}
	return nil
}

func (c *containers) health(h *schema.ObservationHealth) {
	if l := c.limits; c.session.Session != nil && c.had && (l.Memory > 0 || l.Pids > 0 || l.CPUs > 0) &&
		c.session.Apart() {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "limits", Code: "containers_unlimited",
			Message: "the limits of the run did not hold for its containers: assay-run is in different cgroups on " +
				"different hierarchies, and an engine puts a container at one path on all of them",
			Remedy: "run assay-run in the same cgroup on every hierarchy, or limit the containers themselves",
		})
	}
	if len(c.direct) > 0 {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "containers", Code: "engine_asked",
			Message: fmt.Sprintf("processes of the run connected, or tried to connect, to container engines "+
				"themselves (%s): the record shows only those containers that were made with the run's cgroup "+
				"parent, and nothing else that the engine did for them", strings.Join(c.direct, ", ")),
			Remedy: "run with --containers, and let clients find Docker by DOCKER_HOST and podman by PATH",
		})
	}
	if lines, n := c.outside.named(); n > 0 {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "containers", Code: "engine_asked",
			Message: fmt.Sprintf("processes of the run asked the container engine %d times for what may be done "+
				"outside of the run, which the record does not show: %s", n, strings.Join(lines, ", ")),
			Remedy: "make containers without a cgroup parent of their own and without published ports, and use none, " +
				"and no volumes, that the run did not make; mount files instead of copying them; pull and build " +
				"images before the run",
		})
	}
	h.Reasons = append(h.Reasons, c.reasons...)
}

// engineSockets are the file names of container engines' sockets.
var engineSockets = []string{"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock"}

// maxDirect limits how many sockets and requests are named.
const maxDirect = 8

// event records a connection to an engine's socket.
func (c *containers) event(e *schema.KernelEvent) {
	socket, ok := strings.CutPrefix(e.Value, "unix:")
	switch {
	case e.Kind != schema.KindConnect || !ok || e.Failed() || e.Class == schema.ClassCheck:
	case len(c.direct) == maxDirect || slices.Contains(c.direct, socket):
	case c.relay != nil && socket == c.dockerSocket():
	case socket == c.socket && socket != "", slices.Contains(engineSockets, filepath.Base(socket)):
		c.direct = append(c.direct, socket)
	}
}

// askedOutside records requests to the engine that concern more than the run's containers.
type askedOutside struct {
	mu    sync.Mutex
	lines []string // without repeats, at most maxDirect
	n     int
}

func (a *askedOutside) add(_ uint32, line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	if len(a.lines) < maxDirect && !slices.Contains(a.lines, line) {
		a.lines = append(a.lines, line)
	}
}

// named returns the first requests, and how many there were.
func (a *askedOutside) named() ([]string, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.lines), a.n
}

// containerStarters records which process asked Docker to start each container of the run.
type containerStarters struct {
	log *evidence.Log

	mu sync.Mutex
	of map[string][]containerStarter // by container id, until the container starts
	n  int
}

type containerStarter struct {
	pid uint32
	at  uint64 // nanoseconds of CLOCK_BOOTTIME
}

// maxAskers limits the requests for containers that have not started.
const maxAskers = 1 << 12

// ask records the process that asks for a container, before the daemon gets the request.
func (a *containerStarters) ask(pid uint32, c *engine.Container) {
	a.log.Event(schema.Event{
		Type: schema.ContainerStarting, PID: int(pid),
		Containers: []schema.Container{{ID: c.ID, Engine: engine.Docker, Name: c.Name, Image: c.Image}},
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if pid != 0 && a.n < maxAskers && kernel.HostPIDs() { // in another PID namespace the kernel layer has other numbers
		a.of[c.ID] = append(a.of[c.ID], containerStarter{pid, uint64(bootTime())})
		a.n++
	}
}

// starter is [layer.Options].Starter. It returns the last process that asked before t.
func (a *containerStarters) starter(id string, t uint64) (pid uint32, at uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.of[id]
	for len(list) > 0 && list[0].at <= t {
		pid, at = list[0].pid, list[0].at
		list, a.n = list[1:], a.n-1
	}
	if a.of[id] = list; len(list) == 0 {
		delete(a.of, id)
	}
	return pid, at
}
