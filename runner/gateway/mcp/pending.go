package mcp

import (
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// maxPending bounds the requests that the proxy remembers until their answer.
const maxPending = 10_000

// pending is a request of the client that has no answer yet.
type pending struct {
	id     jsontext.Value // as the client wrote it
	method string
	ticket *ticket  // the run's, for a tools/call
	batch  *answers // of the batch that it came in, which may be of one
}

// answers are what the proxy itself answers in a batch. They go out with the
// server's answer to the rest.
type answers struct {
	denied [][]byte
	open   int // requests that the server has to answer
}

// rest counts answers of the server, and gives the proxy's own once, as a batch,
// when the first of them comes or none will.
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
	return join(list)
}

// expect remembers a request until its answer. What cannot be remembered is
// refused: its answer would pass unseen.
func (p *Proxy) expect(m *message, r *pending) (answer []byte, ok bool) {
	if m.ID == nil {
		return nil, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := idKey(m.ID)
	if _, twice := p.pending[key]; twice {
		return errorResponse(m.ID, codeInvalidRequest, "assay-run: another request with this id is in flight", nil), false
	}
	if len(p.pending) >= maxPending {
		return errorResponse(m.ID, codeDenied, fmt.Sprintf("assay-run: more than %d requests in flight", maxPending), nil), false
	}
	r.id = m.ID.Clone()
	p.pending[key] = r
	return nil, true
}

// take forgets a request, and returns it if it was one.
func (p *Proxy) take(id jsontext.Value) *pending {
	if id == nil {
		return nil
	}
	return p.takeKey(idKey(id))
}

func (p *Proxy) takeKey(key string) *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.pending[key]
	delete(p.pending, key)
	return r
}

// answered forgets the request that an answer of the server belongs to, and returns
// it. Some servers give 1 back as "1", or "1" as 1, and some clients take that: the
// request in flight is meant.
func (p *Proxy) answered(id jsontext.Value) *pending {
	r := p.take(id)
	if r == nil && id != nil {
		r = p.takeKey(otherKey(id))
	}
	return r
}

// waiting tells whether the server has to answer anything.
func (p *Proxy) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending) > 0
}

// cancelled forgets a request that the client takes back: the server need not
// answer it any more.
func (p *Proxy) cancelled(m *message) {
	if r := p.take(cancelledID(m)); r != nil && r.ticket != nil {
		p.cfg.Run.cancelled(r.ticket)
	}
}

// cancelledID is the id of the request that a notifications/cancelled takes back.
func cancelledID(m *message) jsontext.Value {
	return value(m.Params, "requestId")
}
