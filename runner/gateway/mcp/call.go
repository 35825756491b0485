package mcp

import (
	"time"

	"github.com/assay-run/assay-run/runner/policy"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// call decides a tools/call.
func (p *Proxy) call(m *jsonrpc.Message, r *pending) (answer []byte, pass bool) {
	c, err := decodeCall(m)
	if err != nil {
		return errorResponse(m.ID, jsonrpc.CodeInvalidParams, "assay-run: "+err.Error(), nil), false
	}
	if m.ID == nil {
		return nil, false // a notification: nobody could be told its result
	}
	found := p.rules.set.Check(&policy.Call{Tool: c.Name, Params: c.Arguments, Now: time.Since(p.rules.began)})
	if v, changed := p.rules.pins.changed(c.Name); changed {
		found = append(found, v)
	}
	if err := p.logDecision(c, found); err != nil {
		p.warn(err.Error())
		return errorResponse(m.ID, codeDenied, "assay-run: the decision about this call could not be recorded, so it is denied", nil), false
	}
	if len(found) > 0 {
		p.cfg.Run.denied(c, found[0])
		return denial(m.ID, found), false
	}
	ticket, rejection := p.cfg.Run.propose(c, p.warn)
	if rejection != "" {
		return errorResponse(m.ID, codeDenied, "denied by the run's policy: "+rejection, nil), false
	}
	p.mu.Lock()
	r.ticket = ticket
	p.mu.Unlock()
	return nil, true
}
