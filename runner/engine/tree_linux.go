package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/kernel/container"
	"github.com/assay-run/assay-run/runner/internal/rundir"
)

// Errors of Tree, and the causes with which Follow ends an observation.
var (
	ErrVersion1 = errors.New("its engine put it only into cgroups of version 1")
	ErrStopped  = errors.New("it does not run")
	ErrRemoved  = errors.New("the container was removed")
	ErrEnded    = errors.New("the container ended")
	// ErrElsewhere means that the engine did not use the directory that Tree made.
	ErrElsewhere = errors.New("the engine put the container into another cgroup")
)

// stopped is the cause with which Follow ends an observation.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// Over reports whether Follow ended the observation, given its cause. If nothing of the
// container was observed by then, the container was missed.
func Over(cause error) bool { return errors.As(cause, &stopped{}) }

// Tree opens the cgroup of a container. If the container runs, that is the cgroup of its
// first process. If it was never started, Tree makes the directory that the engine will
// use, so that nothing is missed. If that directory is not known before the start (with
// the systemd driver), Tree waits for the start, and the first instructions are missed.
func (e *Engine) Tree(ctx context.Context, c *Container) (*tree.Tree, error) {
	if c.PID == 0 && !c.New {
		return nil, fmt.Errorf("container %s: %w", c.Name, ErrStopped)
	}
	if c.PID == 0 {
		at, ok, err := e.cgroup(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", c.Name, err)
		}
		if ok {
			dir, err := tree.Locate(at)
			if err != nil {
				return nil, fmt.Errorf("container %s: %w", c.Name, ErrVersion1)
			}
			rundir.Sweep() // first of all what a dead attach left: this one makes its own
			return tree.Make(dir, noted)
		}
		if c, err = e.started(ctx, c); err != nil {
			return nil, err
		}
	}
	dir, err := directory(c)
	if err != nil {
		return nil, err
	}
	t, err := tree.Open(dir)
	if errors.Is(err, os.ErrNotExist) { // the engine removes it at the end
		return nil, fmt.Errorf("container %s: %w", c.Name, ErrEnded)
	}
	return t, err
}

// noted keeps the paths of directories in a run's own, whose sweep removes them too if this
// process and its sweeper are killed.
func noted(dirs []string) (forget func()) {
	d, err := rundir.Open() // of both kinds, that whose place depends on no login session
	if err != nil {
		return func() {} // then only the sweeper removes them
	}
	_ = d.NoteCgroups(dirs)
	return func() { _ = d.Remove() }
}

// directory is the cgroup2 directory of a container that runs.
func directory(c *Container) (string, error) {
	path, err := tree.Of(c.PID)
	if errors.Is(err, tree.ErrNotCgroup2) {
		return "", fmt.Errorf("container %s: %w", c.Name, ErrVersion1)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("container %s: %w", c.Name, ErrEnded) // since the engine answered
	}
	if err != nil {
		return "", fmt.Errorf("container %s: %w", c.Name, err)
	}
	// A container may make cgroups inside its own. They all belong to it.
	for dir := path; dir != "/"; dir = filepath.Dir(dir) {
		if found, ok := container.Of(filepath.Base(dir)); ok && found.ID == c.ID {
			return dir, nil
		}
	}
	if _, ok := container.Of(path); ok {
		return "", fmt.Errorf(
			"container %s: the process %d that the engine names is not in it: the engine is in another PID namespace",
			c.Name,
			c.PID,
		)
	}
	if inVersion1(c) {
		return "", fmt.Errorf("container %s: %w", c.Name, ErrVersion1)
	}
	return "", fmt.Errorf("container %s: %w: it is in %s with whoever started it", c.Name, ErrShared, path)
}

// inVersion1 reports whether a cgroup of version 1 is the container's.
func inVersion1(c *Container) bool {
	lines, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.PID))
	for line := range strings.Lines(string(lines)) {
		if found, ok := container.Of(strings.TrimSpace(line)); ok && found.ID == c.ID {
			return true
		}
	}
	return false
}

// started waits for the start of a container.
func (e *Engine) started(ctx context.Context, c *Container) (now *Container, err error) {
	err = e.until(ctx, c, func(found *Container) error { now = found; return nil })
	return now, err
}

// Follow waits for the start of a container that Tree made a directory for. If the container
// starts in that directory, Follow just returns. Otherwise it calls stop with the reason.
func (e *Engine) Follow(ctx context.Context, c *Container, t *tree.Tree, stop context.CancelCauseFunc) {
	err := e.until(ctx, c, func(now *Container) error {
		dir, err := directory(now)
		if err == nil && (dir != t.Path || !t.Current()) {
			err = fmt.Errorf("%w: into %s", ErrElsewhere, dir)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		stop(stopped{err})
	}
}

// patience is the time between two attempts to reach an engine that does not answer.
const patience = 200 * time.Millisecond

// until waits until a container runs, and calls then with it. An engine that does not
// answer may be restarting, so until waits for it. The error is ErrRemoved, ErrEnded if the
// container has already ended, then's error, or ctx's.
func (e *Engine) until(ctx context.Context, c *Container, then func(*Container) error) error {
	inner, done := context.WithCancelCause(ctx)
	defer done(nil)
	finished := errors.New("finished")
	look := func() {
		now, err := e.Container(inner, c.ID)
		switch {
		case errors.Is(err, ErrNotFound):
			done(ErrRemoved)
		case err == nil && now.PID != 0:
			if err = then(now); err == nil {
				err = finished
			}
			done(err)
		case err == nil && !now.New:
			done(ErrEnded)
		}
	}
	for {
		err := e.Events(inner, "container", c.ID, look, func(ev Event) {
			if !strings.HasPrefix(ev.Action, "exec_") {
				look()
			}
		})
		if cause := context.Cause(inner); cause != nil {
			if cause == finished {
				return nil
			}
			return cause
		}
		if !errors.Is(err, ErrUnreachable) {
			return err
		}
		select {
		case <-inner.Done():
		case <-time.After(patience):
		}
	}
}
