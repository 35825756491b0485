package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxPage is how much of a trace goes into one message, in bytes. A longer
// trace comes in pages.
const maxPage = 1 << 20

// turnReader reads a recording's turns from its file, from one index on. What
// is not yet a whole line is not yet there, so a reader beside the writer sees
// every turn exactly once.
type turnReader struct {
	f    *os.File
	at   int64
	next uint64 // index of the turn at at
}

// readFrom opens the turns from index on.
func (r *recording) readFrom(index uint64) (*turnReader, *rpcError) {
	if r.file == "" {
		return nil, errorf(codeNoRun, "run %s keeps no trace that can be read", r.id)
	}
	r.mu.Lock()
	turns := r.turns
	var at int64
	start := min(index/indexEvery, uint64(max(len(r.offsets)-1, 0)))
	if len(r.offsets) > 0 {
		at = r.offsets[start]
	}
	r.mu.Unlock()
	if index > turns {
		return nil, errorf(codeInvalidParams, "params/from_index: run %s has %d turns", r.id, turns)
	}
	f, err := os.Open(r.file)
	if errors.Is(err, os.ErrNotExist) && turns == 0 {
		return &turnReader{}, nil
	}
	if err != nil {
		return nil, errorf(codeInternal, "read the trace of run %s: %s", r.id, brief(err))
	}
	t := &turnReader{f: f, at: at, next: start * indexEvery}
	for t.next < index {
		if _, n, err := t.page(1<<16, index-t.next); err != nil || n == 0 {
			t.close()
			return nil, errorf(codeInternal, "the trace of run %s ends at turn %d", r.id, t.next)
		}
	}
	return t, nil
}

// page returns up to limit whole lines, of about max bytes together and at
// least one if there is one, as a JSON array.
func (t *turnReader) page(max int, limit uint64) (array []byte, n uint64, err error) {
	array = []byte{'['}
	if t.f == nil {
		return append(array, ']'), 0, nil
	}
	info, err := t.f.Stat()
	if err != nil {
		return nil, 0, err
	}
	buf := make([]byte, min(int64(max), info.Size()-t.at))
	got, err := t.f.ReadAt(buf, t.at)
	if err != nil && err != io.EOF {
		return nil, 0, err
	}
	buf = buf[:got]
	for got == max && bytes.IndexByte(buf, '\n') < 0 {
		// One line is longer than a page.
		max *= 2
		buf = make([]byte, max)
		if got, err = t.f.ReadAt(buf, t.at); err != nil && err != io.EOF {
			return nil, 0, err
		}
		buf = buf[:got]
	}
	for n < limit {
		line, rest, whole := bytes.Cut(buf, []byte{'\n'})
		if !whole {
			break
		}
		if n > 0 {
			array = append(array, ',')
		}
		array = append(array, line...)
		t.at += int64(len(line)) + 1
		t.next++
		n++
		buf = rest
	}
	return append(array, ']'), n, nil
}

func (t *turnReader) close() {
	if t.f != nil {
		t.f.Close()
	}
}

// getTrace handles runs.get_trace: the turns from from_index on, at most limit
// of them. next_index is there when the trace goes on.
func (c *conn) getTrace(ctx context.Context, raw jsontext.Value) (any, *rpcError) {
	var p struct {
		RunID     string  `json:"run_id"`
		FromIndex uint64  `json:"from_index"`
		Limit     *uint64 `json:"limit"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	rec, err := c.recordingFor(p.RunID)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, errorf(codeNoRun, "no run is open on this connection: name one with run_id")
	}
	t, err := rec.readFrom(p.FromIndex)
	if err != nil {
		return nil, err
	}
	defer t.close()
	limit := ^uint64(0)
	if p.Limit != nil {
		limit = *p.Limit
	}
	rec.mu.Lock()
	have := rec.turns
	rec.mu.Unlock()
	turns, _, rerr := t.page(maxPage, limit)
	if rerr != nil {
		return nil, errorf(codeInternal, "read the trace of run %s: %s", rec.id, brief(rerr))
	}
	res := map[string]any{"run_id": rec.id, "turns": jsontext.Value(turns)}
	if t.next < have {
		res["next_index"] = t.next
	}
	return res, nil
}

// subscription sends a client the turns of a run as they are recorded. It
// reads them from the run's file at its own pace: a slow client costs no
// memory and misses nothing.
type subscription struct {
	id     string
	cancel context.CancelFunc
}

// subscribe handles runs.subscribe: the answer has the turns so far (or the
// first page of them), runs.turns notifications the following ones, and
// runs.ended comes last.
func (c *conn) subscribe(r *request) {
	var p struct {
		RunID     string `json:"run_id"`
		FromIndex uint64 `json:"from_index"`
	}
	if err := decodeParams(r.params, &p); err != nil {
		r.done(nil, err)
		return
	}
	rec, err := c.recordingFor(p.RunID)
	if err == nil && rec == nil {
		err = errorf(codeNoRun, "no run is open on this connection: name one with run_id")
	}
	if err != nil {
		r.done(nil, err)
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	if len(c.subs) >= c.g.limits.Subscriptions || c.draining {
		c.mu.Unlock()
		cancel()
		r.done(nil, errorf(CodeBusy, "at most %d subscriptions on a connection", c.g.limits.Subscriptions))
		return
	}
	defer c.mu.Unlock()
	c.lastSub++
	sub := &subscription{id: strconv.FormatUint(c.lastSub, 10), cancel: cancel}
	c.subs[sub.id] = sub
	c.work.Go(func() {
		defer func() {
			cancel()
			c.mu.Lock()
			delete(c.subs, sub.id)
			c.mu.Unlock()
		}()
		c.follow(ctx, r, rec, sub, p.FromIndex)
	})
}

func (c *conn) follow(ctx context.Context, r *request, rec *recording, sub *subscription, from uint64) {
	t, failure := rec.readFrom(from)
	if failure != nil {
		r.done(nil, failure)
		return
	}
	defer t.close()
	first := true
	for {
		// The order matters: a turn after this moment closes the channel.
		rec.mu.Lock()
		news, state, outcome := rec.appended, rec.state, rec.outcome
		rec.mu.Unlock()
		if t.f == nil {
			if f, err := os.Open(rec.file); err == nil {
				t.f = f
			}
		}
		turns, n, err := t.page(maxPage, ^uint64(0))
		if err != nil {
			if first {
				r.done(nil, errorf(codeInternal, "read the trace of run %s: %s", rec.id, brief(err)))
			}
			return
		}
		switch {
		case first:
			first = false
			r.done(map[string]any{"subscription": sub.id, "run_id": rec.id, "turns": jsontext.Value(turns), "next_index": t.next}, nil)
		case n > 0:
			if !c.notify("runs.turns", map[string]any{"subscription": sub.id, "run_id": rec.id, "turns": jsontext.Value(turns)}) {
				return
			}
		}
		if n > 0 {
			continue
		}
		if state == stateCompleted || state == stateIncomplete && c.g.run == nil {
			c.notify("runs.ended", map[string]any{"subscription": sub.id, "run_id": rec.id, "state": state, "outcome": outcome})
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// notify sends a notification and tells whether the client is still there.
func (c *conn) notify(method string, params any) bool {
	msg, err := appendRequest(nil, 0, method, params)
	return err == nil && c.out.send(msg) == nil
}

// unsubscribe handles runs.unsubscribe.
func (c *conn) unsubscribe(raw jsontext.Value) (any, *rpcError) {
	var p struct {
		Subscription string `json:"subscription"`
	}
	if err := decodeParams(raw, &p); err != nil {
		return nil, err
	}
	c.mu.Lock()
	sub := c.subs[p.Subscription]
	c.mu.Unlock()
	if sub == nil {
		return nil, errorf(codeInvalidParams, "params/subscription: there is no subscription %.40q", p.Subscription)
	}
	sub.cancel()
	return map[string]any{"unsubscribed": p.Subscription}, nil
}
