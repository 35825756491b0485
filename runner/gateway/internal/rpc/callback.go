package rpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Why a call of ours has no answer.
var (
	ErrGone      = errors.New("the client is gone")
	ErrDeadline  = errors.New("the client did not answer in time")
	ErrCancelled = errors.New("the call was cancelled")
)

// Answer is what became of a call: one of its fields is set.
type Answer struct {
	Result jsontext.Value
	Error  jsontext.Value // the client's, verbatim
	Err    error          // ErrGone, ErrDeadline or ErrCancelled
}

// pending is a call of ours that waits for its answer. Whoever takes it out of
// the connection's pending ones ends the waiting.
type pending struct {
	answer chan Answer
	ended  func()
}

// Call sends the client a request while its own request r is being served, and
// waits for the answer: until the deadline, or until ctx or the connection ends.
// ended is called once, when the answer has been read or is not waited for any
// more; at the latest when Call returns.
func (r *Request) Call(ctx context.Context, method string, params any, deadline time.Duration, ended func()) Answer {
	c := r.conn
	waiting := &pending{answer: make(chan Answer, 1), ended: ended}
	id, ok := c.expect(waiting)
	if !ok {
		ended()
		return Answer{Err: ErrGone}
	}
	msg, err := jsonrpc.AppendRequest(nil, jsontext.Value(strconv.AppendQuote(nil, strconv.FormatUint(id, 10))), method, params)
	if err == nil {
		err = c.out.send(msg)
	}
	if err != nil {
		c.deliver(id, Answer{Err: ErrGone}) // unless somebody noticed before
	}
	r.Wait()
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case a := <-waiting.answer:
		return a
	case <-timer.C:
		c.deliver(id, Answer{Err: ErrDeadline})
	case <-ctx.Done():
		c.deliver(id, Answer{Err: ErrCancelled})
	}
	return <-waiting.answer
}

// expect gives a call its id, unless no answer can come any more.
func (c *Conn) expect(p *pending) (id uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return 0, false
	}
	c.lastID++
	c.pending[c.lastID] = p
	return c.lastID, true
}

// deliver ends the waiting for an answer, and tells whether anybody waited. A
// second answer finds nobody.
func (c *Conn) deliver(id uint64, a Answer) bool {
	c.mu.Lock()
	p := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if p == nil {
		return false
	}
	p.ended()
	p.answer <- a
	return true
}

// answered delivers a client's answer.
func (c *Conn) answered(m *jsonrpc.Message) {
	if id, ours := callID(m.ID); !ours || !c.deliver(id, Answer{Result: m.Result, Error: m.Error}) {
		c.server.late.Add(1)
	}
}

// callID is the id of a call of ours. It goes out as a string of digits, and
// some clients bring it back as a number.
func callID(raw jsontext.Value) (id uint64, ours bool) {
	id, err := strconv.ParseUint(jsonrpc.IDText(raw), 10, 64)
	return id, err == nil
}

// spoiled fails the call whose answer was refused: no other one may come.
func (c *Conn) spoiled(raw jsontext.Value, failure *jsonrpc.Error) {
	if id, ours := callID(raw); ours {
		body, err := json.Marshal(failure)
		if err != nil {
			body = []byte("{}") // plain data always encodes
		}
		c.deliver(id, Answer{Error: body})
	}
}
