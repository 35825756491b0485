package engine

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Watcher has the functions that Watch calls. Watch's own goroutine calls Listening and
// Lost.
type Watcher struct {
	// Join is called for each container with the label that was created and not started
	// yet, and for each that starts and was not joined before. Each call has a goroutine of
	// its own, except for the last ones, after ctx has ended. There is at most one call for a
	// container at a time. Join returns false if ctx ended before it could do anything.
	Join func(*Container) bool
	// Missed is called, on any goroutine, for a container that started and ended before Watch
	// could see where it ran.
	Missed func(*Container)
	// Listening is called once the engine reports everything that happens from then on. Lost
	// is called with the reason when it no longer does.
	Listening func()
	Lost      func(error)
}

// Watch watches for containers with a label, KEY=VALUE or KEY, until ctx ends. Then it waits
// for every Join, and joins the containers that have started and were not joined yet. It
// leaves alone the containers that ran before. If the engine goes away, Watch waits until it
// is back, and joins the containers that run then and were not joined. Watch returns an
// error only if it could not reach the engine at first, or if the engine refuses.
func (e *Engine) Watch(ctx context.Context, label string, w Watcher) error {
	if _, err := e.CgroupDriver(ctx); err != nil { // asked now: a container that is about to start must not wait
		return err
	}
	return watch(ctx, e, label, w)
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
				j.begin(&Container{ID: ev.ID, Name: ev.Name, Image: ev.Image, New: true})
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
