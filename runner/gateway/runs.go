package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/schema"
)

// Error codes beside those of JSON-RPC and package rpc.
const (
	codeNoRun       = -32002 // no such run, or none is open
	codeRunState    = -32003 // the run's state does not allow it
	codeNotRecorded = -32004 // the evidence could not be written
	codeNotJoined   = -32006 // the process stays in its cgroup
	codeNotYours    = -32007 // the run is another agent's
)

// maxEnded is how many ended runs runs.list remembers in serve.
const maxEnded = 1000

// sealTimeout bounds the sealing of a run that nobody waits for.
const sealTimeout = 2 * time.Minute

// runs are the runs that a gateway records: the one it was made for, or in serve
// those that clients start.
type runs struct {
	opening sync.Mutex // one runs.start at a time in serve
	journal *journal   // may be nil

	mu     sync.Mutex
	list   []*recording.Run
	byID   map[string]*recording.Run
	byKey  map[string]*recording.Run // by the mark of agent and idempotency key
	past   map[string]note           // runs of an earlier gateway, by id
	ended  int
	closed bool
	work   sync.WaitGroup // what ends runs that their clients left
}

func (r *runs) named(id string) *recording.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

func (r *runs) all() []*recording.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// add adds a run; key is "" if the client gave none.
func (r *runs) add(run *recording.Run, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, run)
	r.byID[run.ID] = run
	if key != "" {
		r.byKey[key] = run
	}
}

// hold makes Close wait for the caller, who calls r.work.Done.
func (r *runs) hold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.work.Add(1)
	return true
}

// close accepts no more runs and waits until all have ended.
func (r *runs) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.work.Wait()
}

// start gives a client its run: the gateway's own, or in serve a new one.
func (g *Gateway) start(ctx context.Context, c *client, start Start, key string) (*recording.Run, *jsonrpc.Error) {
	if id := c.conn.Identity(); id != "" && id != start.AgentID {
		return nil, jsonrpc.Errorf(codeNotYours, "the token is of the agent %s", id)
	}
	if g.run != nil {
		return g.run, refusal(g.run.Open(start, key, g.cfg.Now()))
	}
	if key != "" {
		key = mark(start.AgentID + "\x00" + key)
	}
	g.runs.opening.Lock() // a key repeated at once finds the run that the first one opens
	defer g.runs.opening.Unlock()
	g.runs.mu.Lock()
	known, past := g.runs.byKey[key], g.runs.pastKey(key)
	open := len(g.runs.list) - g.runs.ended
	g.runs.mu.Unlock()
	switch {
	case key != "" && known != nil:
		if state := known.Info().State; state != recording.Open {
			return nil, jsonrpc.Errorf(codeRunState, "run %s, which this idempotency_key opened, is %s", known.ID,
				state)
		}
		return known, nil
	case key != "" && past.Run != "":
		return nil, jsonrpc.Errorf(codeRunState, "run %s, which this idempotency_key opened, is %s", past.Run,
			past.state())
	case open >= g.cfg.Limits.Runs:
		return nil, jsonrpc.Errorf(CodeBusy, "%d runs are open, which is the limit; try again", open)
	}
	made, err := g.cfg.Open(ctx, start)
	if err != nil {
		return nil, notRecorded(err)
	}
	now := g.cfg.Now()
	run := g.newRun(made, now, c.rulesNow().Shared(g.rates.of(start.AgentID)))
	err = errors.Join(run.Open(start, key, now), run.PutPolicy())
	if err != nil {
		g.cfg.Seal(ctx, made, schema.GatewaySession{Schema: schema.GatewaySessionV0, RunID: run.ID,
			State: recording.Incomplete, Calls: map[string]uint64{}})
		return nil, notRecorded(err)
	}
	g.runs.add(run, key)
	g.runs.journal.sync(note{Run: run.ID, Agent: mark(start.AgentID), Key: key, State: recording.Open})
	return run, nil
}

func notRecorded(err error) *jsonrpc.Error {
	return jsonrpc.Errorf(codeNotRecorded, "the run cannot be recorded: %s", jsonrpc.Brief(err))
}

// refusal is an error of opening a run, as the client gets it.
func refusal(err error) *jsonrpc.Error {
	var state *recording.StateError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &state):
		return jsonrpc.Errorf(codeRunState, "%v", err)
	}
	return notRecorded(err)
}

// end ends a run with a client's outcome, or with "" as incomplete. In serve it
// makes the run's bundle.
func (g *Gateway) end(run *recording.Run, outcome recording.Outcome) *jsonrpc.Error {
	err := run.End(outcome, g.cfg.Now, func(session schema.GatewaySession) (string, error) {
		if run == g.run {
			return "", run.Sync()
		}
		return g.seal(run, session)
	})
	var state *recording.StateError
	if errors.As(err, &state) {
		return jsonrpc.Errorf(codeRunState, "%v", err)
	}
	if g.runs.journal != nil {
		info := run.Info()
		g.runs.journal.sync(note{Run: run.ID, Agent: mark(info.AgentID), State: info.State})
	}
	if err == nil {
		return nil
	}
	return jsonrpc.Errorf(codeNotRecorded, "run %s has ended, but not everything could be recorded: %s", run.ID,
		jsonrpc.Brief(err))
}

// seal makes the bundle of a run in serve, and forgets the oldest ended ones.
func (g *Gateway) seal(run *recording.Run, session schema.GatewaySession) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sealTimeout)
	defer cancel()
	bundle, err := g.cfg.Seal(ctx, run.To, session)
	if err != nil {
		g.warn("run " + run.ID + ": " + err.Error())
	}
	g.runs.forget()
	return bundle, err
}

// forget drops the oldest ended runs beyond maxEnded.
func (r *runs) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	for i := 0; r.ended > maxEnded && i < len(r.list); {
		run := r.list[i]
		if state := run.Info().State; state != recording.Completed && state != recording.Incomplete {
			i++
			continue
		}
		r.list = slices.Delete(r.list, i, i+1)
		delete(r.byID, run.ID)
		for key, other := range r.byKey {
			if other == run {
				delete(r.byKey, key)
			}
		}
		r.ended--
	}
}

// abandon ends a run whose clients did not return.
func (g *Gateway) abandon(run *recording.Run) {
	if !g.runs.hold() {
		return
	}
	defer g.runs.work.Done()
	if err := g.end(run, recording.Outcome{}); err != nil && err.Code != codeRunState {
		g.warn(err.Message)
	}
}

// observer learns of a run's calls; nil for nobody.
func (g *Gateway) observer(run *recording.Run) Observer {
	if g.cfg.Observe != nil {
		return g.cfg.Observe(run.To)
	}
	return g.cfg.Observer
}
