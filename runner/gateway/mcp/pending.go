package mcp

import (
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// maxPending bounds the requests that wait for an answer.
const maxPending = 10_000

// pending is a request of the client that has no answer yet.
type pending struct {
	id     jsontext.Value // as the client wrote it
	method string
	ticket *ticket  // the run's, for a tools/call
	batch  *answers // of the batch that it came in, maybe a batch of one
}

// answers are the proxy's own answers to requests of a batch. They are sent with the
// server's answers to the rest.
type answers struct {
	denied [][]byte
	open   int // requests that the server still has to answer
}

// rest counts the server's answers. It returns the proxy's own answers once, as a batch:
// when the server's first answer comes, or when none will come.
func (b *answers) rest(mu *sync.Mutex, answered int) []byte {
	mu.Lock()
	defer mu.Unlock()
	if len(b.denied) == 0 || answered == 0 && b.open > 0 {
		return nil
	}
	var list []jsontext.Value
	for _, d := range b.denied {
		list = append(list, d)
	}
	b.denied = nil
	return jsonrpc.Join(list)
}

// expect remembers a request until its answer. A request that cannot be remembered is
// refused, because its answer would pass unchecked.
func (p *Proxy) expect(m *jsonrpc.Message, r *pending) (answer []byte, ok bool) {
	if m.ID == nil {
		return nil, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := jsonrpc.IDKey(m.ID)
	if _, twice := p.pending[key]; twice {
		return errorResponse(m.ID, jsonrpc.CodeInvalidRequest, "assay-run: another request with this id is in flight", nil), false
	}
	if len(p.pending) >= maxPending {
		return errorResponse(m.ID, codeDenied, fmt.Sprintf("assay-run: more than %d requests in flight", maxPending), nil), false
	}
	r.id = m.ID.Clone()
	p.pending[key] = r
	return nil, true
}

// take forgets a request and returns it, or nil if there was none.
func (p *Proxy) take(id jsontext.Value) *pending {
	if id == nil {
		return nil
	}
	return p.takeKey(jsonrpc.IDKey(id))
}

func (p *Proxy) takeKey(key string) *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.pending[key]
	delete(p.pending, key)
	return r
}

// answered forgets the request that an answer of the server belongs to, and returns
// it. Some servers answer the id 1 with "1", or "1" with 1, and some clients accept that:
// the answer then belongs to the request in flight.
func (p *Proxy) answered(id jsontext.Value) *pending {
	r := p.take(id)
	if r == nil && id != nil {
		r = p.takeKey(jsonrpc.OtherKey(id))
	}
	return r
}

// waiting reports whether the server still has to answer a request.
func (p *Proxy) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending) > 0
}

// cancelled forgets a request that the client cancels: the server need not answer it any
// more.
func (p *Proxy) cancelled(m *jsonrpc.Message) {
	if r := p.take(cancelledID(m)); r != nil && r.ticket != nil {
		p.cfg.Run.cancelled(r.ticket)
	}
}

// cancelledID is the id of the request that a notifications/cancelled cancels.
func cancelledID(m *jsonrpc.Message) jsontext.Value {
	return jsonrpc.Value(m.Params, "requestId")
}
