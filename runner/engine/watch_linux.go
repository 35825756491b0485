package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/runner/internal/rundir"
)

// Watcher has the functions that Watch calls. Watch's own goroutine calls Listening and
// Lost.
type Watcher struct {
	// Join is called for each container with the label that was created and not started yet, and for each that starts
	// and was not joined before. Each call has its own goroutine, except for the last ones, after ctx has ended.
	// There is at most one call per container at a time. Join returns false if ctx ended before it could do anything.
	Join func(*Container) bool
	// Missed is called, in any goroutine, for a container that started and ended before Watch could see where it ran.
	Missed func(*Container)
	// Listening is called once the engine reports everything from then on. Lost is called with the reason when it no
	// longer does.
	Listening func()
	Lost      func(error)
}

// Watch watches for containers with a label, KEY=VALUE or KEY, until ctx ends. Then it waits for every Join, and
// joins the containers that have started and were not joined. It ignores containers that ran before. If the engine
// goes away, Watch waits until it is back, and joins the containers that run then and were not joined. Watch returns
// an error only if it could not reach the engine at first, or if the engine refuses.
func (e *Engine) Watch(ctx context.Context, label string, w Watcher) error {
	if _, err := e.CgroupDriver(ctx); err != nil { // now, since a container that is about to start must not wait for it
		return err
	}
	return watch(ctx, e, label, w)
}

// Tree opens the cgroup of a container. If the container runs, this is the cgroup of its first process. If it was
// never started, Tree makes the directory that the engine will use, so that nothing is missed. If that directory is
// not known before the start, as with the systemd driver, Tree waits for the start, and the first instructions are
// missed.
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
		if c, err = e.Started(ctx, c); err != nil {
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

// Started waits for the start of a container, and returns what the engine says of it then.
func (e *Engine) Started(ctx context.Context, c *Container) (now *Container, err error) {
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

// source is what a watch asks about containers: an Engine, or Pods.
type source interface {
	Events(ctx context.Context, filter, value string, listening func(), fn func(Event)) error
	List(ctx context.Context, label string) ([]string, error)
	Container(ctx context.Context, id string) (*Container, error)
}

func watch(ctx context.Context, e source, label string, w Watcher) error {
	j := &joins{
		e: e, ctx: ctx, w: w, created: map[string]bool{}, active: map[string]*joining{}, settled: map[string]bool{},
		past: map[string]bool{},
	}
	defer j.running.Wait()
	before := true // until the containers that ran before are listed
	for {
		listening := false
		err := e.Events(ctx, "label", label, func() {
			listening = true
			j.list(label, before)
			before = false
			w.Listening()
		}, func(ev Event) {
			switch ev.Action {
			case "create":
				// The engine answers questions about the container only once it has started it.
				j.created[ev.ID] = true
				j.begin(&Container{ID: ev.ID, Name: ev.Name, Image: ev.Image, Labels: ev.Labels, New: true})
			case "start":
				if !j.created[ev.ID] {
					j.started(ev.ID)
				}
				delete(j.created, ev.ID)
			case "die", "died":
				j.ended(ev.ID)
			case "destroy", "remove":
				delete(j.created, ev.ID)
			}
		})
		switch {
		case ctx.Err() != nil:
			j.rest(label)
			return nil
		case before || !errors.Is(err, ErrUnreachable):
			return err
		case listening:
			w.Lost(err)
		}
		select {
		case <-ctx.Done():
			j.rest(label)
			return nil
		case <-time.After(patience):
		}
	}
}

// joins is the state of a Watch: which containers were joined.
type joins struct {
	e       source
	ctx     context.Context
	w       Watcher
	running sync.WaitGroup
	created map[string]bool // by id: joined when they were created, and not started yet

	mu      sync.Mutex
	active  map[string]*joining // by id
	settled map[string]bool     // by id: true if nothing is left to do; false if rest has to look again
	// past are those that ended after they were joined or left alone: an engine lists one
	// that has just ended among those that run.
	past map[string]bool
}

// joining is what happens to a container while it is joined.
type joining struct{ ended, started bool }

// list looks at the containers that exist. With alone, it leaves alone those that run.
func (j *joins) list(label string, alone bool) {
	ids, _ := j.e.List(j.ctx, label) // events report what starts from now on
	for _, id := range ids {
		j.look(id, alone)
	}
}

// look joins a container that is not joined. It asks the engine in a goroutine: the engine
// answers only when it has finished what it is doing with the container.
func (j *joins) look(id string, alone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.active[id] != nil {
		return
	}
	j.settled[id] = alone
	j.running.Go(func() {
		c, err := j.e.Container(j.ctx, id)
		switch {
		case j.ctx.Err() != nil:
		case err == nil && c.New, err == nil && c.PID != 0 && !alone:
			j.begin(c)
		case err != nil || c.PID == 0:
			j.missed(id, c)
		}
	})
}

// missed reports a container that started and ended unseen. c is nil if the engine no
// longer knows it.
func (j *joins) missed(id string, c *Container) {
	j.ended(id)
	if c == nil {
		c = &Container{ID: id, Name: id[:min(12, len(id))]}
	}
	j.w.Missed(c)
}

// rest joins the containers that run and were not joined when ctx ended. Join is quick by
// then.
func (j *joins) rest(label string) {
	j.running.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), restTime)
	defer cancel()
	ids, _ := j.e.List(ctx, label)
	for id := range j.settled {
		ids = append(ids, id)
	}
	for _, id := range ids {
		if j.settled[id] {
			continue
		}
		j.settled[id] = true
		c, err := j.e.Container(ctx, id)
		switch {
		case err == nil && c.PID != 0:
			j.w.Join(c)
		case j.past[id]:
		case errors.Is(err, ErrNotFound), err == nil && !c.New:
			j.missed(id, c)
		}
	}
}

// restTime bounds how long rest asks the engine.
const restTime = 5 * time.Second

func (j *joins) begin(c *Container) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.active[c.ID] != nil || j.ctx.Err() != nil {
		return
	}
	now := &joining{}
	j.active[c.ID], j.settled[c.ID] = now, false
	j.running.Go(func() {
		joined := j.w.Join(c)
		j.mu.Lock()
		delete(j.active, c.ID)
		j.settled[c.ID] = joined
		if now.ended {
			j.settle(c.ID)
		}
		j.mu.Unlock()
		if now.started {
			j.look(c.ID, false)
		}
	})
}

// ended notes the end of a container, and started its start. A container that starts again
// while its first bundle is being sealed is joined after that.
func (j *joins) ended(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := j.active[id]; now != nil {
		now.ended = true
	} else {
		j.settle(id)
	}
}

// settle takes a container that has ended off those that need no more looking at.
func (j *joins) settle(id string) {
	if j.settled[id] {
		j.past[id] = true
	}
	delete(j.settled, id)
}

func (j *joins) started(id string) {
	j.mu.Lock()
	now := j.active[id]
	if now != nil {
		now.started = now.ended
	}
	j.mu.Unlock()
	if now == nil {
		j.look(id, false)
	}
}
