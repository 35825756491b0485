package gateway

import (
	"context"
	"time"
)

// sealTimeout bounds the sealing of a run that nobody waits for any more.
const sealTimeout = 2 * time.Minute

// open gives a client its recording: the run's own, or in serve a new one.
func (g *Gateway) open(ctx context.Context, c *conn, start Start, key string) (*recording, *rpcError) {
	if g.run != nil {
		return g.openOwn(start, key)
	}
	full := start.AgentID + "\x00" + key
	g.opening.Lock() // a key repeated at once finds the run that the first one opens
	defer g.opening.Unlock()
	g.mu.Lock()
	if rec := g.byKey[full]; key != "" && rec != nil {
		g.mu.Unlock()
		return rec, nil
	}
	open := len(g.runs) - g.ended
	g.mu.Unlock()
	if open >= g.limits.Runs {
		return nil, errorf(CodeBusy, "%d runs are open, more are not allowed", open)
	}
	made, err := g.cfg.Open(ctx, start)
	if err != nil {
		return nil, errorf(codeNotRecorded, "the run cannot be recorded: %s", brief(err))
	}
	now := g.cfg.Now()
	rec := newRecording(made, now, c.scopeNow(), &g.cfg)
	rec.begin(start, key, now)
	rec.putPolicy()
	rec.putSession()
	if err := rec.failure(); err != nil {
		g.cfg.Seal(ctx, made, rec.session())
		return nil, errorf(codeNotRecorded, "the run cannot be recorded: %s", brief(err))
	}
	g.mu.Lock()
	g.runs = append(g.runs, rec)
	g.byID[rec.id] = rec
	if key != "" {
		g.byKey[full] = rec
	}
	g.mu.Unlock()
	return rec, nil
}

// openOwn opens the run's own recording. A run that its clients left is opened
// again; one that was completed is not.
func (g *Gateway) openOwn(start Start, key string) (*recording, *rpcError) {
	r := g.run
	r.mu.Lock()
	switch {
	case r.state == stateReady || r.state == stateIncomplete:
		r.begin(start, key, g.cfg.Now())
	case key != "" && key == r.key, r.state == stateOpen && r.start.AgentID == start.AgentID:
		r.mu.Unlock()
		return r, nil
	default:
		state := r.state
		r.mu.Unlock()
		return nil, errorf(codeRunState, "run %s is %s already", r.id, state)
	}
	r.mu.Unlock()
	if err := r.putSession(); err != nil {
		return nil, errorf(codeNotRecorded, "the run cannot be recorded: %s", brief(err))
	}
	return r, nil
}

// end completes a recording with a client's outcome, or with "" as incomplete:
// it waits for the calls in flight, then writes session.json and, in serve,
// seals. Ending it twice is an error.
func (g *Gateway) end(ctx context.Context, r *recording, outcome string) *rpcError {
	r.mu.Lock()
	if r.state != stateOpen {
		state := r.state
		r.mu.Unlock()
		return errorf(codeRunState, "run %s is not open, it is %s", r.id, state)
	}
	r.state = stateClosing
	if r.grace != nil {
		r.grace.Stop()
		r.grace = nil
	}
	var idle chan struct{}
	if r.active > 0 {
		idle = make(chan struct{})
		r.idle = idle
	}
	r.mu.Unlock()
	if idle != nil {
		// Calls end by themselves: by their deadlines at the latest.
		<-idle
	}
	r.mu.Lock()
	r.outcome = outcome
	r.tEnd = g.cfg.Now() - r.zero
	r.mu.Unlock()
	r.scope.set("run", "")
	err := r.putSession()
	if g.run == nil {
		err = g.seal(r)
	} else if serr := r.rec.Sync(); err == nil {
		err = r.failed(serr)
	}
	r.mu.Lock()
	r.state = stateCompleted
	if outcome == "" {
		r.state = stateIncomplete
	}
	close(r.appended) // wakes subscriptions to see the end
	r.appended = make(chan struct{})
	r.mu.Unlock()
	if err != nil {
		return errorf(codeNotRecorded, "run %s has ended, but not everything could be recorded: %s", r.id, brief(err))
	}
	return nil
}

// seal makes the bundle of a run in serve, and forgets what only a live run
// needs.
func (g *Gateway) seal(r *recording) error {
	r.mu.Lock()
	session := r.session()
	made := Recording{RunID: r.id, Recorder: r.rec, TurnsFile: r.file}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sealTimeout)
	defer cancel()
	bundle, err := g.cfg.Seal(ctx, made, session)
	r.mu.Lock()
	r.bundle = bundle
	r.blobs = newBlobStore(r.rec, &g.cfg)
	r.mu.Unlock()
	if err != nil {
		g.warn("run " + r.id + ": " + err.Error())
	}
	g.forget()
	return r.failed(err)
}

// maxEnded is how many ended runs runs.list remembers.
const maxEnded = 1000

// forget drops the oldest ended runs beyond maxEnded.
func (g *Gateway) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended++
	for i := 0; g.ended > maxEnded && i < len(g.runs); i++ {
		r := g.runs[i]
		r.mu.Lock()
		over := r.state == stateCompleted || r.state == stateIncomplete
		key := r.start.AgentID + "\x00" + r.key
		r.mu.Unlock()
		if over {
			g.runs = append(g.runs[:i:i], g.runs[i+1:]...)
			delete(g.byID, r.id)
			if g.byKey[key] == r {
				delete(g.byKey, key)
			}
			g.ended--
			i--
		}
	}
}

// abandon ends a recording whose clients did not come back.
func (g *Gateway) abandon(r *recording) {
	r.mu.Lock()
	left := len(r.conns) == 0 && r.state == stateOpen
	r.mu.Unlock()
	if !left || !g.hold() {
		return
	}
	defer g.work.Done()
	if err := g.end(context.Background(), r, ""); err != nil {
		g.warn(err.Message)
	}
}

func (g *Gateway) warn(message string) {
	if g.cfg.Warn != nil {
		g.cfg.Warn(message)
	}
}
