package gateway

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// Error codes in addition to those of JSON-RPC and package rpc.
const (
	codeNoRun       = -32002 // the run does not exist, or none is open
	codeRunState    = -32003 // the run's state does not allow it
	codeNotRecorded = -32004 // the evidence could not be written
	codeNotJoined   = -32006 // the process was not moved
	codeNotYours    = -32007 // the run belongs to another agent
)

// maxEnded is how many ended runs runs.list remembers in serve.
const maxEnded = 1000

// sealTimeout limits the sealing of a run that nobody waits for.
const sealTimeout = 2 * time.Minute

// runs are the runs that a gateway records: its own, or in serve those that clients start.
type runs struct {
	opening sync.Mutex // serializes runs.start in serve
	journal *journal   // may be nil

	mu     sync.Mutex
	list   []*recording.Run
	byID   map[string]*recording.Run
	byKey  map[string]*recording.Run // by the mark of agent and idempotency key
	past   map[string]note           // runs of an earlier gateway, by id
	ended  int
	closed bool
	work   sync.WaitGroup // goroutines that end runs whose clients left
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

// hold makes Close wait for the caller, who must call r.work.Done. It reports false after Close.
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

func notRecorded(err error) *jsonrpc.Error {
	return jsonrpc.Errorf(codeNotRecorded, "the run cannot be recorded: %s", jsonrpc.Brief(err))
}

// refusal is the client's error for an error of opening a run.
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

// earlier returns a run of an earlier gateway that was not resumed.
func (r *runs) earlier(id string) (note, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.past[id]
	return n, ok
}

// pastKey returns the run that a key opened in an earlier gateway, if it was not resumed. The caller holds r.mu.
func (r *runs) pastKey(key string) note {
	for _, n := range r.past {
		if key != "" && n.Key == key {
			return n
		}
	}
	return note{}
}
