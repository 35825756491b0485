package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/schema"
)

// watching is an attach --watch in progress.
type watching struct {
	app     *app // prints no messages about containers that were recorded well
	f       *attachFlags
	e       containers
	engine  string // the name of who reports them
	one     string // container or pod
	ctx     context.Context
	sweeper *kernel.Sweeper

	mu     sync.Mutex
	taken  map[string]bool // the paths of bundles that this watch writes
	failed bool            // a container was not recorded, or its bundle not sealed
}

// containers are those of an engine, or the pods of a node.
type containers interface {
	Watch(ctx context.Context, label string, w engine.Watcher) error
	Container(ctx context.Context, id string) (*engine.Container, error)
	Tree(ctx context.Context, c *engine.Container) (*tree.Tree, error)
	Follow(ctx context.Context, c *engine.Container, t *tree.Tree, stop context.CancelCauseFunc)
	Labels(c *engine.Container) map[string]string
}

// attachWatch records containers until a signal arrives, --until is reached, or the command
// ends.
func (a *app) attachWatch(ctx context.Context, f *attachFlags, command []string) error {
	with := &beside{app: a, command: command}
	ctx, stop, err := f.detaching(ctx, with)
	if err != nil {
		return console.WithHint(err, "see assay-run attach --help")
	}
	defer stop(nil)
	w, err := a.watching(ctx, f, command)
	if err != nil {
		return err
	}
	err = w.e.Watch(ctx, f.label, engine.Watcher{
		Join:   w.join,
		Missed: w.missed,
		Listening: func() {
			a.say.Info("watching %s for %ss with the label %s", w.engine, w.one, console.Printable(f.label))
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
		code = runner.ExitRunner
	}
	if code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}

// watching checks the flags, and prepares what the recordings of all containers share.
func (a *app) watching(ctx context.Context, f *attachFlags, command []string) (*watching, error) {
	var err error
	switch {
	case f.label == "" || f.dir == "":
		err = errors.New("--watch needs --label and --dir")
	case f.container != "" || f.cgroup != "" || f.pid != 0:
		err = errors.New("--watch finds the containers itself: omit --container, --cgroup and --pid")
	case f.namespace != "" && f.engine != engine.Kubernetes:
		err = errors.New("--namespace belongs to --engine kubernetes")
	case f.output != "" || f.store || f.result != "":
		err = errors.New("--watch writes its bundles to --dir: omit --output, --store and --result")
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
	w := &watching{f: f, ctx: ctx, taken: map[string]bool{}, engine: f.engine, one: "container"}
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
	f.spec.Preload()
	return w, nil
}

// join records one container. It returns false if the watch ended first.
func (w *watching) join(c *engine.Container) bool {
	// The container is about to start: do nothing slow before this.
	ctx, stop := context.WithCancelCause(w.ctx)
	defer stop(nil)
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
	spec.RunID = runner.New().RunID
	spec.Labels = w.e.Labels(c)
	f.spec, f.output = &spec, w.name(c)
	state := schema.Absent
	err = w.app.record(ctx, &spec, &f, runner.Target{Tree: t, Sweeper: w.sweeper, Attached: spec.Preload},
		func(h *schema.ObservationHealth) { state = h.KernelState })
	var exit console.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.Err != nil) {
		w.fail(c, err)
		return true
	}
	w.mu.Lock()
	w.failed = w.failed || err != nil
	fmt.Fprintf(w.app.stdout, "%s\t%s\t%s\n", console.Printable(c.Name), console.Printable(f.output), state)
	w.mu.Unlock()
	if cause := context.Cause(ctx); errors.Is(cause, engine.ErrElsewhere) {
		w.elsewhere(c.ID)
	}
	return true
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
	w.app.say.Failure(fmt.Errorf("%s %s: %w", w.one, console.Printable(c.Name), err))
}

// name is the path of a bundle that does not exist yet. A container that starts again gets
// another bundle.
func (w *watching) name(c *engine.Container) string {
	safe := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r &&
			r <= 'Z') {
			return r
		}
		return '_'
	}, c.Name[:min(len(c.Name), 100)])
	base := filepath.Join(w.f.dir, strings.TrimLeft(safe, ".")+"-"+c.ID[:min(len(c.ID), 12)])
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
