package gateway

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// callback is a request of ours that waits for its answer. Whoever takes it
// out of the connection's pending ones calls ended.
type callback struct {
	answer chan answer // has room for the one that comes
	ended  func()
}

// answer is what became of a callback.
type answer struct {
	result jsontext.Value
	err    jsontext.Value
	lost   bool
}

// call sends the client a request and waits for the answer. outcome is nil
// when the client answered with a result. ended is called once, when the answer
// has been read or is not waited for any more.
func (c *conn) call(ctx context.Context, method string, params any, deadline time.Duration, ended func()) (result, failure jsontext.Value, outcome *schema.CallOutcome) {
	failed := func(code string, retryable bool) *schema.CallOutcome {
		return &schema.CallOutcome{Kind: schema.CallExecutionFailed, Code: code, Retryable: &retryable}
	}
	cb := &callback{make(chan answer, 1), ended}
	id, ok := c.expect(cb)
	if !ok {
		ended()
		return nil, nil, failed(schema.FailCallbackLost, true)
	}
	defer c.take(id)
	msg, err := appendRequest(nil, id, method, params)
	if err != nil || c.out.send(msg) != nil {
		return nil, nil, failed(schema.FailCallbackLost, true)
	}
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case a := <-cb.answer:
		switch {
		case a.lost:
			return nil, nil, failed(schema.FailCallbackLost, true)
		case a.err != nil:
			return nil, a.err, failed(schema.FailToolError, false)
		}
		return a.result, nil, nil
	case <-timer.C:
		return nil, nil, failed(schema.FailDeadline, true)
	case <-ctx.Done():
		return nil, nil, failed(schema.FailCancelled, true)
	}
}

// expect gives a callback its id, unless no answer can come any more.
func (c *conn) expect(cb *callback) (id uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		return 0, false
	}
	c.lastID++
	c.pending[c.lastID] = cb
	return c.lastID, true
}

// take ends a callback that is still waited for; else it returns nil.
func (c *conn) take(id uint64) *callback {
	c.mu.Lock()
	cb := c.pending[id]
	delete(c.pending, id) // a second answer finds nobody
	c.mu.Unlock()
	if cb != nil {
		cb.ended()
	}
	return cb
}

// answered hands a response to whoever waits for it. The call has then ended:
// also what waits for it wakes up only later.
func (c *conn) answered(m *message) {
	var id uint64
	if err := json.Unmarshal(m.ID, &id); err == nil {
		if cb := c.take(id); cb != nil {
			cb.answer <- answer{result: m.Result, err: m.Error}
			return
		}
	}
	c.g.count.add(func(m *Metrics) { m.LateResults++ })
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
			cb.answer <- answer{lost: true}
		}
	}
}
