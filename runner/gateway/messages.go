package gateway

import (
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// handle takes one message, or a batch of them.
func (c *conn) handle(b []byte) {
	if i := firstByte(b); i == '[' {
		c.handleBatch(b)
		return
	}
	c.handleOne(b, c.send)
}

func firstByte(b []byte) byte {
	for _, ch := range b {
		if ch != ' ' && ch != '\t' && ch != '\r' && ch != '\n' {
			return ch
		}
	}
	return 0
}

// maxBatch bounds the messages of a JSON-RPC batch.
const maxBatch = 1000

// handleBatch handles the messages of an array; their responses come back in
// one, in any order.
func (c *conn) handleBatch(b []byte) {
	var list []jsontext.Value
	if err := scan(b, c.g.limits.Depth); err != nil {
		c.refuse(nil, errorf(codeInvalidRequest, "%v", err))
		return
	}
	if err := json.Unmarshal(b, &list); err != nil {
		c.refuse(nil, errorf(codeParse, "not valid JSON: %s", brief(err)))
		return
	}
	if len(list) == 0 || len(list) > maxBatch {
		c.refuse(nil, errorf(codeInvalidRequest, "a batch has 1 to %d messages, this one has %d", maxBatch, len(list)))
		return
	}
	batch := &batch{send: c.send, open: len(list)}
	for _, m := range list {
		c.handleOne(m, batch.add)
	}
}

// batch collects the responses of a JSON-RPC batch.
type batch struct {
	send func([]byte)
	mu   sync.Mutex
	buf  []byte
	open int
}

// add takes the response to one message; nil when there is none.
func (b *batch) add(response []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if response != nil {
		sep := byte(',')
		if len(b.buf) == 0 {
			sep = '['
		}
		b.buf = append(append(b.buf, sep), response...)
	}
	if b.open--; b.open == 0 && len(b.buf) > 0 {
		b.send(append(b.buf, ']'))
	}
}

// handleOne takes one message and calls respond exactly once, with nil when
// the message gets no response.
func (c *conn) handleOne(b []byte, respond func([]byte)) {
	m, failure := decodeMessage(b, c.g.limits.Depth)
	if failure != nil {
		c.g.count.add(func(m *Metrics) { m.Refused++ })
		id, response := idOf(b)
		if response {
			c.spoiled(id, failure)
			id = nil // it is one of ours
		}
		respond(appendResponse(nil, id, nil, failure))
		return
	}
	if m.Method == nil {
		c.answered(m)
		respond(nil)
		return
	}
	r := &request{conn: c, id: m.ID, method: *m.Method, params: m.Params, size: len(b), respond: respond}
	c.dispatch(r)
}

// request is a client's request or, without an id, its notification.
type request struct {
	conn    *conn
	id      jsontext.Value
	method  string
	params  jsontext.Value
	size    int
	respond func([]byte)
}

// done answers a request. It is called exactly once.
func (r *request) done(result any, failure *rpcError) {
	if failure != nil {
		r.conn.g.count.add(func(m *Metrics) { m.Refused++ })
	}
	if r.id == nil {
		r.respond(nil)
		return
	}
	r.respond(appendResponse(nil, r.id, result, failure))
}
