package gateway

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// getTrace handles runs.get_trace: the turns from from_index on, at most limit
// of them. The answer has next_index if there are more.
func (c *client) getTrace(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		RunID     string  `json:"run_id"`
		FromIndex uint64  `json:"from_index"`
		Limit     *uint64 `json:"limit"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	run, err := c.runFor(p.RunID, true)
	if err != nil {
		return nil, err
	}
	t, rerr := run.Read(p.FromIndex)
	if rerr != nil {
		return nil, unreadable(rerr)
	}
	defer t.Close()
	limit := uint64(math.MaxUint64)
	if p.Limit != nil {
		limit = *p.Limit
	}
	turns, _, rerr := t.Page(limit)
	if rerr != nil {
		return nil, unreadable(rerr)
	}
	i := run.Info()
	res := map[string]any{"run_id": run.ID, "agent_id": i.AgentID, "state": i.State, "t_start_ns": int64(i.TStart), "turns": jsontext.Value(turns)}
	if i.TEnd > 0 {
		res["t_end_ns"], res["outcome"] = int64(i.TEnd), i.Outcome
	}
	if t.Behind() {
		res["next_index"] = t.Next
	}
	return res, nil
}

// unreadable is why a trace cannot be read.
func unreadable(err error) *jsonrpc.Error {
	code := jsonrpc.CodeInternal
	switch {
	case errors.Is(err, recording.ErrNoTrace):
		code = codeNoRun
	case errors.Is(err, recording.ErrNoTurn):
		code = jsonrpc.CodeInvalidParams
	}
	return jsonrpc.Errorf(code, "%s", jsonrpc.Brief(err))
}

// subscribe handles runs.subscribe: the answer has the turns so far (or the
// first page of them), runs.turns notifications the following ones, and
// runs.ended comes last. A subscription reads the turns at the client's pace, so
// a slow one costs no memory and misses nothing.
func (c *client) subscribe(r *rpc.Request) {
	var p struct {
		RunID     string `json:"run_id"`
		FromIndex uint64 `json:"from_index"`
	}
	if err := r.Decode(&p); err != nil {
		r.Answer(nil, err)
		return
	}
	run, err := c.runFor(p.RunID, true)
	if err != nil {
		r.Answer(nil, err)
		return
	}
	most := c.g.cfg.Limits.Subscriptions
	c.mu.Lock()
	full := len(c.subs) >= most
	c.lastSub++
	id := strconv.FormatUint(c.lastSub, 10)
	if !full {
		c.subs[id] = func() {} // until it has begun
	}
	c.mu.Unlock()
	if full || !c.conn.Beside(func(ctx context.Context) { c.follow(ctx, r, run, id, p.FromIndex) }) {
		// A client that can receive nothing is about to be closed.
		r.Answer(nil, jsonrpc.Errorf(CodeBusy, "at most %d subscriptions on a connection", most))
	}
}

// follow is a subscription from its answer to its end.
func (c *client) follow(ctx context.Context, r *rpc.Request, run *recording.Run, id string, from uint64) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.subs[id] = cancel
	c.mu.Unlock()
	defer func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, id)
	}()
	t, err := run.Read(from)
	if err != nil {
		r.Answer(nil, unreadable(err))
		return
	}
	defer t.Close()
	turns, _, err := t.Page(math.MaxUint64)
	if err != nil {
		r.Answer(nil, unreadable(err))
		return
	}
	r.Answer(map[string]any{"subscription": id, "run_id": run.ID, "turns": jsontext.Value(turns), "next_index": t.Next}, nil)
	for t.More(ctx) {
		turns, n, err := t.Page(math.MaxUint64)
		if err != nil {
			return
		}
		if n > 0 && !c.conn.Notify("runs.turns", map[string]any{"subscription": id, "run_id": run.ID, "turns": jsontext.Value(turns)}) {
			return
		}
	}
	if ctx.Err() == nil {
		i := run.Info()
		c.conn.Notify("runs.ended", map[string]any{"subscription": id, "run_id": run.ID, "state": i.State, "outcome": i.Outcome})
	}
}

// unsubscribe handles runs.unsubscribe.
func (c *client) unsubscribe(r *rpc.Request) (any, *jsonrpc.Error) {
	var p struct {
		Subscription string `json:"subscription"`
	}
	if err := r.Decode(&p); err != nil {
		return nil, err
	}
	c.mu.Lock()
	cancel := c.subs[p.Subscription]
	c.mu.Unlock()
	if cancel == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/subscription: subscription %.40q does not exist", p.Subscription)
	}
	cancel()
	return map[string]any{"unsubscribed": p.Subscription}, nil
}
