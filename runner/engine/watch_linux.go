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
	Join func(*Container)
	// Missed is told of a container that started and ended before Watch could see where
	// it ran. Any goroutine calls it.
	Missed func(*Container)
	// Listening is called once the engine tells of everything that happens from now on,
	// and Lost when it no longer does, with why.
	Listening func()
	Lost      func(error)
}

// Watch watches for containers with a label, KEY=VALUE or KEY, until ctx ends, and
// then waits for every Join. Containers that ran before are left alone. If the engine
// goes away, Watch waits until it is back, and then joins those that run and were not
// joined. The error tells that it could not be asked in the first place.
func (e *Engine) Watch(ctx context.Context, label string, w Watcher) error {
	j := &joins{e: e, ctx: ctx, w: w, created: map[string]bool{}, active: map[string]bool{}}
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
					j.look(ev.ID, false)
				}
				delete(j.created, ev.ID)
			case "destroy", "remove":
				delete(j.created, ev.ID)
			}
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case before || !errors.Is(err, ErrUnreachable):
			return err
		case listening:
			w.Lost(err)
		}
		select {
		case <-ctx.Done():
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

	mu     sync.Mutex
	active map[string]bool // by id
}

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
	if j.active[id] {
		return
	}
	j.running.Go(func() {
		c, err := j.e.Container(j.ctx, id)
		switch {
		case j.ctx.Err() != nil:
		case err != nil:
			j.w.Missed(&Container{ID: id, Name: id[:min(12, len(id))]})
		case c.New || c.PID != 0 && !alone:
			j.begin(c)
		case c.PID == 0:
			j.w.Missed(c)
		}
	})
}

func (j *joins) begin(c *Container) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.active[c.ID] || j.ctx.Err() != nil {
		return
	}
	j.active[c.ID] = true
	j.running.Go(func() {
		defer func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			delete(j.active, c.ID)
		}()
		j.w.Join(c)
	})
}
