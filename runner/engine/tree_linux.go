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
)

// Errors of Tree, and what Follow ends with.
var (
	ErrVersion1 = errors.New("its engine put it only into cgroups of version 1")
	ErrStopped  = errors.New("it does not run")
	ErrRemoved  = errors.New("the container was removed")
	ErrEnded    = errors.New("the container ended")
	// ErrElsewhere is the cause of a container that was not put where it was expected.
	ErrElsewhere = errors.New("the engine put the container into another cgroup")
)

// stopped is the cause with which Follow ends an observation.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// Over tells whether it was Follow that ended the observation: where nothing was seen of
// the container by then, it was missed.
func Over(cause error) bool { return errors.As(cause, &stopped{}) }

// Tree opens the cgroup of a container: of a running one, that of its first process;
// of one that was never started, the directory that the engine will put it into, made
// ahead, so that nothing of it is missed. Where the engine's driver does not tell that
// directory (systemd), Tree waits for the start, and the first instructions are missed.
func (e *Engine) Tree(ctx context.Context, c *Container) (*tree.Tree, error) {
	if c.PID == 0 && !c.New {
		return nil, fmt.Errorf("container %s: %w", c.Name, ErrStopped)
	}
	if c.PID == 0 {
		at, ok, err := e.Cgroup(ctx, c)
		if err != nil {
			return nil, err
		}
		if ok {
			dir, err := tree.Locate(at)
			if err != nil {
				return nil, fmt.Errorf("container %s: %w", c.Name, ErrVersion1)
			}
			return tree.Make(dir)
		}
		if c, err = e.started(ctx, c); err != nil {
			return nil, err
		}
	}
	dir, err := directory(c)
	if err != nil {
		return nil, err
	}
	return tree.Open(dir)
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
	// A container may make cgroups in its own: all of them are meant.
	for dir := path; dir != "/"; dir = filepath.Dir(dir) {
		if found, ok := container.Of(filepath.Base(dir)); ok && found.ID == c.ID {
			return dir, nil
		}
	}
	if _, ok := container.Of(path); ok {
		return "", fmt.Errorf("container %s: the process %d that the engine names is not in it: the engine is in another PID namespace", c.Name, c.PID)
	}
	return "", fmt.Errorf("container %s: %w", c.Name, ErrVersion1)
}

// started waits for the start of a container.
func (e *Engine) started(ctx context.Context, c *Container) (now *Container, err error) {
	err = e.until(ctx, c, func(found *Container) error { now = found; return nil })
	return now, err
}

// Follow looks after a container that Tree made a directory for. It returns when the
// container has started there; else it calls stop with why observation has to end.
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

// patience is how long an engine that does not answer is left alone.
const patience = 200 * time.Millisecond

// until waits until a container runs, and gives it to then. An engine that does not
// answer may be restarting: until waits for it. The error is ErrRemoved, ErrEnded if it
// came and went, then's, or that of ctx.
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
