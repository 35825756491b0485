package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/harbor"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/specfile"
)

// attachFlags are the flags of attach: what to observe and for how long, and, as for a run,
// where the bundle goes.
type attachFlags struct {
	runFlags
	watch             bool
	label, dir        string
	harbor            string
	namespace         string
	container, engine string
	cgroup            string
	pid               int
	until             string
}

func attachCommand(a *app) *cobra.Command {
	f := &attachFlags{}
	f.spec = specfile.New()
	cmd := &cobra.Command{
		Use: "attach (--container NAME | --cgroup PATH | --pid PID | --watch | --harbor JOBS) [flags] " +
			"[-- CMD [ARG...]]",
		Short: "Record what somebody else started",
		Long: `attach records what happens in a container, or in an existing cgroup and everything
below it, and seals a bundle when no process is left. It contains nothing and ends nothing.
It does not record what happened before it attached, and observation-health.json says so.
If a container is created but not started, attach waits for it and misses nothing.

attach asks the engine about a container through its HTTP API: Docker at DOCKER_HOST or
/var/run/docker.sock, Podman ("podman system service") at CONTAINER_HOST or
/run/podman/podman.sock. The Podman of an ordinary user has a socket of its own. Under sudo,
attach finds that of the user who called sudo. For another user, set
CONTAINER_HOST=unix:///run/user/UID/podman/podman.sock.

With --watch, attach records every container that has the label and starts while attach runs.
For each bundle that it seals, it prints a line with the container's name, the bundle, and
"complete" or "partial", separated by tabs. attach prepares for a container when the engine
creates it. If the container starts before attach is ready, its layer is partial.

With --watch --engine kubernetes, attach runs in a pod and records each pod of its node that has
the label, also one that runs already. It asks the API server with the pod's service account, which
may list and watch pods, and takes the node's name from NODE_NAME. See docs/kubernetes.md.

With --harbor, attach records the container of each trial that Harbor starts while attach runs. It
writes the trial's bundle, run.tar.gz, beside the trial's result.json. The bundle has the labels
trial, task, agent, model and reward, and the evaluation that follows from the task. See
docs/harbor.md.

attach ends earlier on SIGINT or SIGTERM, with --until, or, if you give a command, when that
command ends. attach does not record the command, and exits with its exit code.

attach needs root and a cgroup2 hierarchy.`,
		Example: `  docker create --name agent IMAGE && assay-run attach --container agent -- docker start -a agent
  assay-run attach --watch --label eval=7 --dir bundles -- docker compose up
  assay-run attach --harbor jobs -- harbor run -d my-tasks -a claude-code
  assay-run attach --cgroup /sys/fs/cgroup/system.slice/agent.service
  assay-run attach --pid 4711 --until 10m -o agent.tar.gz
  assay-run attach --pid 4711 -- ./end-to-end-tests`,
		Args: commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.faults.err(); err != nil {
				return console.WithHint(err, "see assay-run attach --help")
			}
			a.say.Quiet = f.quiet
			if err := runner.CheckHost(); err != nil {
				return noRuns(err)
			}
			defer queueMessages(a).end()
			if f.watch || f.harbor != "" {
				return attachWatch(cmd.Context(), a, f, args)
			}
			return attachOne(cmd.Context(), a, f, args)
		},
		DisableFlagsInUseLine: true,
	}
	engines := append(slices.Clone(engine.Names), engine.Kubernetes)
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.container, "container", "", "record the container with the name or id `NAME`")
	fs.StringVar(&f.engine, "engine", "", "ask `ENGINE` about the container: "+strings.Join(engines, ", ")+
		" (default the one of "+strings.Join(engine.Names, " and ")+" whose socket exists)")
	fs.StringVar(&f.cgroup, "cgroup", "", "record the processes in the cgroup2 directory `PATH` and below")
	fs.IntVar(&f.pid, "pid", 0, "record the cgroup that the process `PID` is in")
	fs.BoolVar(&f.watch, "watch", false,
		"record each container that starts with the label --label, each in its own bundle")
	fs.StringVar(&f.label, "label", "",
		"with --watch: record containers with the label `KEY=VALUE`, or KEY with any value")
	fs.StringVar(&f.namespace, "namespace", "",
		"with --engine kubernetes: record only the pods in the namespace `NAME` (default all)")
	fs.StringVar(&f.dir, "dir", "", "with --watch: write the bundles to `DIR`")
	fs.StringVar(&f.harbor, "harbor", "",
		"record each trial that Harbor starts, and write its bundle beside its result in Harbor's directory `JOBS`")
	fs.StringVar(&f.until, "until", "", "detach after `TIME` (90s, 10m) or at TIME (2026-01-31T18:00:00Z)")
	f.registerBundle(fs)
	fs.StringVar(&f.spec.RunID, "run-id", f.spec.RunID, "name the run `ID`: letters, digits, _ and - (default random)")
	fs.Lookup("run-id").DefValue = ""
	fs.Var(&f.spec.KernelBuffer, "kernel-buffer",
		"kernel event buffer `SIZE`; raise it if events were dropped (default 4MiB)")
	fs.Var(&list{to: &f.spec.Require}, "require",
		"end with 125 unless the evidence is `WHAT`: "+specfile.RequireComplete)
	f.redact.register(fs)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing if all goes well")
	console.Completes(cmd, map[string][]string{"require": {specfile.RequireComplete}, "engine": engines})
	f.faults.gather(fs)
	return cmd
}

// attachOne observes one cgroup and seals its bundle.
func attachOne(ctx context.Context, a *app, f *attachFlags, command []string) error {
	if f.label != "" || f.dir != "" || f.namespace != "" {
		return console.WithHint(errors.New("--label, --dir and --namespace need --watch"),
			"name the bundle with -o")
	}
	with := &companion{app: a, command: command}
	ctx, stop, err := f.detaching(ctx, with)
	if err != nil {
		return console.WithHint(err, "see assay-run attach --help")
	}
	defer stop(nil)
	t, err := f.tree(ctx, stop)
	if err != nil {
		return nothingAttached(err)
	}
	f.spec.Command = f.commandLine(command)
	if err := f.spec.Validate(); err != nil {
		t.Close()
		return console.WithHint(err, "see assay-run attach --help")
	}
	return recordAttachment(ctx, a, f.spec, &f.runFlags, runner.Target{
		Tree: t, Exit: with.exit,
		Attached: func() {
			a.say.Info("attached to %s", schema.OneLine(t.Path))
			with.start(stop)
		},
	}, func(h *schema.ObservationHealth) { tellAttached(a.say, h) })
}

// nothingAttached adds a hint to an error that happened before anything was recorded.
func nothingAttached(err error) error {
	var kubernetes *engine.KubernetesError
	if errors.As(err, &kubernetes) {
		if kubernetes.Hint != "" {
			err = console.WithHint(err, "%s", kubernetes.Hint)
		}
		return nothingWas("recorded", err)
	}
	hint := "name a container with --container, a cgroup2 directory with --cgroup, or a process with --pid"
	switch {
	case errors.Is(err, tree.ErrRoot), errors.Is(err, tree.ErrOurs):
		hint = "put what you want to record into a cgroup of its own"
	case errors.Is(err, tree.ErrNotCgroup2), errors.Is(err, engine.ErrVersion1):
		hint = "boot with cgroup v2, or mount the cgroup2 hierarchy; assay-run cannot record a cgroup that " +
			"has only version 1"
	case errors.Is(err, engine.ErrShared):
		hint = "run it below assay-run instead: as root, assay-run --user USER --containers -- podman run ...; or " +
			"create the container with --cgroup-parent and a cgroup that its user may write"
	case errors.Is(err, engine.ErrUnreachable):
		hint = "start the engine's service (for Podman: podman system service), choose it with --engine, or name " +
			"its socket in DOCKER_HOST or CONTAINER_HOST; or use --cgroup or --pid" + ofUsers()
	case errors.Is(err, engine.ErrStopped):
		hint = "attach to a container that runs, or that was created and never started"
	case errors.Is(err, engine.ErrNotFound):
		hint = "check the name: docker ps --all, or podman ps --all, lists the containers; choose the " +
			"engine with --engine" + ofUsers()
	}
	return nothingWas("recorded", console.WithHint(err, "%s", hint))
}

// ofUsers names the sockets of ordinary users' Podman, for a hint.
func ofUsers() string {
	found := engine.OfUsers()
	if len(found) == 0 {
		return ""
	}
	return "; users of this host have a Podman of their own: set CONTAINER_HOST=unix://" +
		strings.Join(found, " or CONTAINER_HOST=unix://")
}

// detaching returns a context that ends when attach has to end. Its cause says why.
func (f *attachFlags) detaching(ctx context.Context, with *companion) (context.Context, context.CancelCauseFunc,
	error) {
	var after time.Duration
	if f.until != "" {
		at, err := time.Parse(time.RFC3339, f.until)
		if err == nil {
			after = time.Until(at)
		} else if after, err = config.ParseDuration(f.until); err != nil {
			return nil, nil, fmt.Errorf("--until %q is neither a duration nor a time", f.until)
		}
		if after <= 0 {
			return nil, nil, fmt.Errorf("--until %s has passed", f.until)
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	// // so that a closed stderr causes a write error, and does not end attach
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for s := range signals {
			stop(fmt.Errorf("assay-run got %s", schema.SignalName(uint32(s.(syscall.Signal)))))
			with.pass(s)
		}
	}()
	if after > 0 {
		time.AfterFunc(after, func() { stop(fmt.Errorf("--until %s", f.until)) })
	}
	return ctx, stop, nil
}

// tellAttached warns if the kernel layer is not complete.
func tellAttached(say *console.Messages, h *schema.ObservationHealth) {
	if why, remedy := runner.Incomplete(h); why != "" {
		say.Advice(firstRemedy(remedy), "the kernel layer is not complete, so the bundle may miss what happened: %s",
			why)
	}
}

// recordAttachment records one attachment and seals its bundle. It closes the target's tree.
func recordAttachment(ctx context.Context, a *app, spec *specfile.Spec, f *runFlags, target runner.Target,
	onHealth func(*schema.ObservationHealth)) error {
	output, err := f.bundle(spec.RunID)
	var r *recording
	if err == nil {
		r, err = prepareRecording(ctx, a, spec, f, output, nil)
	}
	if err == nil {
		defer r.close()
		r.record.Applied = nil // what somebody else's command is under is not known
		if err = r.start(); err == nil {
			err = r.spool.OnDisk()
		}
	}
	if err != nil {
		target.Tree.Close()
		return nothingWas("recorded", err)
	}
	expectEvents()
	lost := &losses{say: a.say}
	result, recording := runner.Attach(ctx, spec, target, runner.Options{
		Recorder: r.spool, Redactor: r.redactor, ScratchDir: r.spool.Dir(), OnHealth: onHealth, OnLoss: lost.add,
	})
	lost.end()
	return r.seal(context.WithoutCancel(ctx), result, recording, func(bool) {})
}

// tree opens the cgroup that the flags name. It calls stop later if the container will not
// start, or starts in another cgroup.
func (f *attachFlags) tree(ctx context.Context, stop context.CancelCauseFunc) (*tree.Tree, error) {
	named := 0
	for _, given := range []bool{f.container != "", f.cgroup != "", f.pid != 0} {
		if given {
			named++
		}
	}
	switch {
	case named == 0:
		return nil, errors.New("no container, cgroup or process was named")
	case named > 1:
		return nil, errors.New("only one of --container, --cgroup and --pid can be used")
	case f.pid != 0:
		path, err := tree.Of(f.pid)
		if err != nil {
			return nil, err
		}
		return tree.Open(path)
	case f.cgroup != "":
		return tree.Open(f.cgroup)
	}
	if f.engine == engine.Kubernetes {
		return nil, errors.New("--engine kubernetes needs --watch")
	}
	e, err := engine.Find(f.engine)
	if err != nil {
		return nil, err
	}
	c, err := e.Container(ctx, f.container)
	if err != nil {
		return nil, err
	}
	t, err := e.Tree(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.New {
		go e.Follow(ctx, c, t, stop)
	}
	f.spec.Labels = e.Labels(c)
	return t, nil
}

// commandLine is the command in run.json: assay-run attach itself, with the flags that say
// what to record.
func (f *attachFlags) commandLine(command []string) []string {
	line := []string{"assay-run", "attach"}
	if f.watch {
		line = append(line, "--watch", "--label", f.label)
	}
	if f.harbor != "" {
		line = append(line, "--harbor", f.harbor)
	}
	if f.engine == engine.Kubernetes {
		line = append(line, "--engine", f.engine)
	}
	if f.namespace != "" {
		line = append(line, "--namespace", f.namespace)
	}
	if f.container != "" {
		line = append(line, "--container", f.container)
	}
	if f.cgroup != "" {
		line = append(line, "--cgroup", f.cgroup)
	}
	if f.pid != 0 {
		line = append(line, "--pid", strconv.Itoa(f.pid))
	}
	if f.until != "" {
		line = append(line, "--until", f.until)
	}
	if len(command) > 0 {
		line = append(append(line, "--"), command...)
	}
	return line
}

// companion is the command that attach runs, if one was given. attach does not record it.
type companion struct {
	app     *app
	command []string
	once    sync.Once // for a caller that may call start again

	mu   sync.Mutex
	cmd  *exec.Cmd     // nil until it was started
	done chan struct{} // closed when it has ended
	code int           // its exit code, valid once done is closed
}

// start starts the command, and calls stop when the command ends.
func (b *companion) start(stop context.CancelCauseFunc) {
	if len(b.command) == 0 {
		return
	}
	cmd := exec.Command(b.command[0], b.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = b.app.stdin, b.app.stdout, b.app.stderr
	if err := cmd.Start(); err != nil {
		b.code = schema.ExitNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			b.code = schema.ExitNotFound
		}
		b.app.say.Failure(err)
		stop(errors.New("the command could not be started"))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cmd, b.done = cmd, make(chan struct{})
	go func() {
		defer close(b.done)
		_ = cmd.Wait()
		b.code = exitCode(cmd.ProcessState)
		stop(errors.New("the command ended"))
	}()
}

// pass passes a signal on to the command, except the signals that a terminal also sends to
// the command itself.
func (b *companion) pass(s os.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil && s != syscall.SIGINT && s != syscall.SIGQUIT {
		_ = b.cmd.Process.Signal(s)
	}
}

// exit waits for the command's end and returns its exit code. It is 0 without a command.
func (b *companion) exit() int {
	if b.done != nil {
		<-b.done
	}
	return b.code
}

// watching is an attach --watch in progress.
type watching struct {
	app     *app // prints no messages about containers that were recorded well
	f       *attachFlags
	e       containerSource
	engine  string // the engine's name
	label   string // of the containers
	one     string // what one of them is called: container or pod
	ctx     context.Context
	sweeper *kernel.Sweeper
	over    chan struct{} // closed when the command has ended, or attach has to end

	mu     sync.Mutex
	taken  map[string]bool // the paths of bundles that this watch writes
	failed bool            // a container was not recorded, or its bundle not sealed
}

// containerSource is an engine with its containers, or a node with its pods.
type containerSource interface {
	Watch(ctx context.Context, label string, w engine.Watcher) error
	Container(ctx context.Context, id string) (*engine.Container, error)
	Tree(ctx context.Context, c *engine.Container) (*tree.Tree, error)
	Follow(ctx context.Context, c *engine.Container, t *tree.Tree, stop context.CancelCauseFunc)
	Labels(c *engine.Container) map[string]string
}

// attachWatch records containers until a signal arrives, --until is reached, or the command
// ends.
func attachWatch(ctx context.Context, a *app, f *attachFlags, command []string) error {
	with := &companion{app: a, command: command}
	ctx, stop, err := f.detaching(ctx, with)
	if err != nil {
		return console.WithHint(err, "see assay-run attach --help")
	}
	defer stop(nil)
	w, err := newWatching(ctx, a, f, command)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { close(w.over) })
	err = w.e.Watch(ctx, w.label, engine.Watcher{
		Join:   w.join,
		Missed: w.missed,
		Listening: func() {
			a.say.Info("watching %s for %ss with the label %s", w.engine, w.one, schema.OneLine(w.label))
			with.once.Do(func() { with.start(stop) })
		},
		Lost: func(err error) {
			a.say.Warning("%v: %ss that start and end before it answers again are not recorded", err, w.one)
		},
	})
	if err != nil {
		return nothingAttached(err)
	}
	code := with.exit()
	if w.failed {
		code = schema.ExitRunner
	}
	if code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}

// newWatching checks the flags, and prepares what the recordings of all containers share.
func newWatching(ctx context.Context, a *app, f *attachFlags, command []string) (*watching, error) {
	var err error
	switch {
	case f.harbor != "" && (f.watch || f.label != "" || f.dir != "" || f.engine == engine.Kubernetes):
		err = errors.New("--harbor finds the containers of Harbor's trials, and writes their bundles beside their " +
			"results: omit --watch, --label, --dir and --engine kubernetes")
	case f.harbor == "" && (f.label == "" || f.dir == ""):
		err = errors.New("--watch needs --label and --dir")
	case f.container != "" || f.cgroup != "" || f.pid != 0:
		err = errors.New("--watch and --harbor find the containers: omit --container, --cgroup and --pid")
	case f.namespace != "" && f.engine != engine.Kubernetes:
		err = errors.New("--namespace needs --engine kubernetes")
	case f.output != "" || f.store || f.result != "":
		err = errors.New("--watch writes its bundles to --dir, and --harbor beside the results: omit --output, " +
			"--store and --result")
	case f.harbor != "":
		f.harbor, err = filepath.Abs(f.harbor)
	default:
		if f.dir, err = filepath.Abs(f.dir); err == nil {
			err = os.MkdirAll(f.dir, 0o700)
		}
	}
	if err != nil {
		return nil, console.WithHint(fmt.Errorf("nothing was recorded: %w", err),
			"as in: assay-run attach --watch --label eval=7 --dir bundles")
	}
	f.spec.Command = f.commandLine(command)
	if err := f.spec.Validate(); err != nil {
		return nil, console.WithHint(err, "see assay-run attach --help")
	}
	w := &watching{f: f, ctx: ctx, taken: map[string]bool{}, engine: f.engine, one: "container", label: f.label,
		over: make(chan struct{})}
	if f.harbor != "" {
		w.label = harbor.Service
	}
	if f.engine == engine.Kubernetes {
		w.one = "pod"
		w.e, err = engine.InPod(f.namespace)
	} else {
		var e *engine.Engine
		if e, err = engine.Find(f.engine); err == nil {
			w.e, w.engine = e, e.Name
		}
	}
	if err != nil {
		return nil, nothingAttached(err)
	}
	quiet, say := *a, *a.say
	say.Quiet, quiet.say = true, &say
	w.app = &quiet
	w.sweeper, _ = kernel.StartSweeper() // it sweeps when this process ends
	runner.Preload(f.spec)
	return w, nil
}

// join records one container, and reports whether the watch goes on.
func (w *watching) join(c *engine.Container) bool {
	// The container is about to start: do nothing slow before this.
	ctx, stop := context.WithCancelCause(w.ctx)
	defer stop(nil)
	var trial *harbor.Trial
	if w.f.harbor != "" {
		if trial = harbor.Find(w.f.harbor, c.Labels); trial == nil {
			return true // of another project of compose
		}
	}
	t, err := w.e.Tree(ctx, c)
	if err != nil {
		if w.ctx.Err() != nil {
			return false
		}
		switch {
		case errors.Is(err, engine.ErrRemoved):
		case errors.Is(err, engine.ErrEnded):
			w.missed(c)
		default:
			w.fail(c, err)
		}
		return true
	}
	if c.New {
		go w.e.Follow(ctx, c, t, stop)
	}
	spec, f := *w.f.spec, w.f.runFlags
	spec.RunID = specfile.New().RunID
	spec.Labels = w.e.Labels(c)
	f.spec = &spec
	name, target := c.Name, runner.Target{Tree: t, Sweeper: w.sweeper, Attached: func() { runner.Preload(&spec) }}
	if trial == nil {
		f.output = w.name(c)
	} else {
		name, f.output = trial.Name, w.free(filepath.Join(trial.Dir, "run"))
		labels, _ := trial.Labels()
		maps.Copy(spec.Labels, labels)
		target.Trial = harbor.Record(trial, inside{w.e.(*engine.Engine), c}, w.over)
	}
	state := schema.Absent
	err = recordAttachment(ctx, w.app, &spec, &f, target,
		func(h *schema.ObservationHealth) { state = h.KernelState })
	var exit console.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.Err != nil) {
		w.fail(c, err)
		return true
	}
	w.mu.Lock()
	w.failed = w.failed || err != nil
	fmt.Fprintf(w.app.stdout, "%s\t%s\t%s\n", schema.OneLine(name), schema.OneLine(f.output), state)
	w.mu.Unlock()
	if cause := context.Cause(ctx); errors.Is(cause, engine.ErrElsewhere) {
		w.elsewhere(c.ID)
	}
	return true
}

// inside answers what harbor asks about a container.
type inside struct {
	e *engine.Engine
	c *engine.Container
}

func (i inside) Workdir(ctx context.Context) (string, error) {
	c, err := i.e.Started(ctx, i.c)
	if err != nil {
		return "", err
	}
	return c.Workdir, nil
}

func (i inside) File(ctx context.Context, file string) (string, bool, error) {
	return i.e.File(ctx, i.c.ID, file)
}

func (i inside) Programs(ctx context.Context) (map[string][]string, error) {
	return i.e.Programs(ctx, i.c.ID)
}

// elsewhere joins a container late, in the cgroup that the engine has put it into.
func (w *watching) elsewhere(id string) {
	if c, err := w.e.Container(w.ctx, id); err == nil && c.PID != 0 {
		w.join(c)
	}
}

func (w *watching) missed(c *engine.Container) {
	w.fail(c, errors.New("it ended before assay-run could join it, and was not recorded"))
}

// fail reports that a container was not recorded as it should have been.
func (w *watching) fail(c *engine.Container, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
	w.app.say.Failure(fmt.Errorf("%s %s: %w", w.one, schema.OneLine(c.Name), err))
}

// name returns the path of a bundle that does not exist yet. A container that starts again gets
// another bundle.
func (w *watching) name(c *engine.Container) string {
	safe := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r &&
			r <= 'Z') {
			return r
		}
		return '_'
	}, c.Name[:min(len(c.Name), 100)])
	return w.free(filepath.Join(w.f.dir, strings.TrimLeft(safe, ".")+"-"+c.ID[:min(len(c.ID), 12)]))
}

// free returns the path of a bundle that does not exist yet, which begins with base.
func (w *watching) free(base string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, name := 2, base+".tar.gz"; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) && !w.taken[name] {
			w.taken[name] = true
			return name
		}
		name = fmt.Sprintf("%s-%d.tar.gz", base, n)
	}
}
