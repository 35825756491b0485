package engine

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Watcher is what Watch tells. All but Join and Missed are called by Watch's goroutine.
type Watcher struct {
	// Join is called for each container with the label that was created and not started
	// yet, and for each that starts and was not joined before. Watch runs it in a
	// goroutine of its own, and calls it for a container again only when it has returned.
	// False says that ctx ended before Join could do anything.
	Join func(*Container) bool
	// Missed is told of a container that started and ended before Watch could see where
	// it ran. Any goroutine calls it.
	Missed func(*Container)
	// Listening is called once the engine tells of everything that happens from now on,
	// and Lost when it no longer does, with why.
	Listening func()
	Lost      func(error)
}

// Watch watches for containers with a label, KEY=VALUE or KEY, until ctx ends, and
// then waits for every Join, and joins those that had started and that it had not come
// to yet. Containers that ran before are left alone. If the engine
// goes away, Watch waits until it is back, and then joins those that run and were not
// joined. The error tells that it could not be asked in the first place.
func (e *Engine) Watch(ctx context.Context, label string, w Watcher) error {
	j := &joins{e: e, ctx: ctx, w: w, created: map[string]bool{}, active: map[string]*joining{}, settled: map[string]bool{}}
	defer j.running.Wait()
	if _, err := e.cgroupDriver(ctx); err != nil { // now, and not when a container is about to start
		return err
	}
	before := true // of the containers that run
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
				// What else there is to know, an engine tells when it has started it.
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

// joins are the containers that are joined.
type joins struct {
	e       *Engine
	ctx     context.Context
	w       Watcher
	running sync.WaitGroup
	created map[string]bool // by id: those joined before their first start, which is to come

	mu      sync.Mutex
	active  map[string]*joining // by id
	settled map[string]bool     // by id: true of those left alone, or joined when ctx ended, false of those to look at again then
}

// joining is what happens to a container while it is joined.
type joining struct{ ended, started bool }

// list looks at the containers that there are. Of those, alone leaves those alone that
// run.
func (j *joins) list(label string, alone bool) {
	ids, _ := j.e.List(j.ctx, label) // what starts is told of besides
	for _, id := range ids {
		j.look(id, alone)
	}
}

// look joins a container that is not joined. The engine answers only when what it does
// with the container is done, so nobody waits.
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

// missed tells of a container that came and went. c is nil where the engine no longer
// knows it.
func (j *joins) missed(id string, c *Container) {
	j.ended(id)
	if c == nil {
		c = &Container{ID: id, Name: id[:min(12, len(id))]}
	}
	j.w.Missed(c)
}

// rest joins what runs, and was not come to when ctx ended: Join takes no longer than
// it has to by then.
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
		case errors.Is(err, ErrNotFound), err == nil && !c.New:
			j.missed(id, c)
		}
	}
}

// restTime bounds how long an engine is asked for what the watch had not come to.
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
			delete(j.settled, c.ID)
		}
		j.mu.Unlock()
		if now.started {
			j.look(c.ID, false)
		}
	})
}

// ended and started are told of a container that was joined before, or not at all. One
// that starts again while its first bundle is sealed is joined after that.
func (j *joins) ended(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := j.active[id]; now != nil {
		now.ended = true
	} else {
		delete(j.settled, id)
	}
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
