package gateway

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// callback is a request of ours that waits for its answer. Whoever takes it out
// of the connection's pending ones ends the waiting and hands it what became of
// it.
type callback struct {
	ended   func()
	resume  func(answer)
	timer   *time.Timer
	unwatch func() bool // the context
}

// answer is what became of a callback.
type answer struct {
	result jsontext.Value
	err    jsontext.Value
	failed string // the code, when the client did not answer
}

// call sends the client a request. It returns false when that cannot be done;
// else resume is called once, in any goroutine and maybe before call returns.
// ended is called before that, when the answer has been read or is not waited
// for any more.
func (c *conn) call(ctx context.Context, method string, params any, deadline time.Duration, ended func(), resume func(answer)) bool {
	id, ok := c.expect(ctx, &callback{ended: ended, resume: resume}, deadline)
	if !ok {
		ended()
		return false
	}
	msg, err := appendRequest(nil, id, method, params)
	if err == nil {
		err = c.out.send(msg)
	}
	// Without a client, whoever noticed first has taken it.
	return err == nil || c.take(id) == nil
}

// expect gives a callback its id and its end, unless no answer can come any
// more.
func (c *conn) expect(ctx context.Context, cb *callback, deadline time.Duration) (id uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return 0, false
	}
	c.lastID++
	id = c.lastID
	fail := func(code string) func() {
		return func() {
			if cb := c.take(id); cb != nil {
				cb.resume(answer{failed: code})
			}
		}
	}
	c.pending[id] = cb
	cb.timer = time.AfterFunc(deadline, fail(schema.FailDeadline))
	cb.unwatch = context.AfterFunc(ctx, fail(schema.FailCancelled))
	return id, true
}

// take ends a callback that is still waited for; else it returns nil.
func (c *conn) take(id uint64) *callback {
	c.mu.Lock()
	cb := c.pending[id]
	delete(c.pending, id) // a second answer finds nobody
	c.mu.Unlock()
	if cb != nil {
		cb.timer.Stop()
		cb.unwatch()
		cb.ended()
	}
	return cb
}

// answered resumes whoever waits for a response, right here: another goroutine
// would have to be woken.
func (c *conn) answered(m *message) {
	if cb := c.takeByID(m.ID); cb != nil {
		cb.resume(answer{result: m.Result, err: m.Error})
		return
	}
	c.g.count.add(func(m *Metrics) { m.LateResults++ })
}

// spoiled fails the call whose answer was refused: no other one may come.
func (c *conn) spoiled(id jsontext.Value, failure *rpcError) {
	if cb := c.takeByID(id); cb != nil {
		body, err := json.Marshal(failure)
		if err != nil {
			body = []byte("{}") // plain data always encodes
		}
		cb.resume(answer{err: body})
	}
}

func (c *conn) takeByID(raw jsontext.Value) *callback {
	var id uint64
	if json.Unmarshal(raw, &id) != nil {
		return nil
	}
	return c.take(id)
}

// lose ends the waiting for answers, as none can come any more, and the
// subscriptions.
func (c *conn) lose() {
	c.mu.Lock()
	c.lost = true
	lost := make([]uint64, 0, len(c.pending))
	for id := range c.pending {
		lost = append(lost, id)
	}
	for _, s := range c.subs {
		s.cancel()
	}
	c.mu.Unlock()
	for _, id := range lost {
		if cb := c.take(id); cb != nil {
			cb.resume(answer{failed: schema.FailCallbackLost})
		}
	}
}
