package binding

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// Model is what the model gateway knows of the calls that a model proposed. Both functions are called while events are
// bound.
type Model struct {
	// Known makes sure that everything that passed before t, nanoseconds since run_started, has been handed in, but
	// for answers that have not ended.
	Known func(t int64)
	// Unsettled reports whether a part of an answer that has not ended passed before t.
	Unsettled func(t int64) bool
	// Opens tells that nobody else says when calls begin.
	Opens bool
}

// Model makes a Correlator take in proposals. It is called before the first Bind.
func (c *Correlator) Model(m Model) { c.model = &m }

// proposal is a tool call in the answer of a model.
type proposal struct {
	id, tool string
	args     []byte // the digest of canonical arguments; nil: there are none, or they are not JSON
	command  string // of a shell; empty: none
	seq      *uint64
	own      *call // the call that it opened; nil for none
	called   *call // the call that it is the proposal of; nil: none is known
	answered bool
}

// Proposed tells of a tool call whose last byte was passed on to the agent at a time, and returns a number for
// Recorded. args is JSON, or nil.
func (c *Correlator) Proposed(id, tool string, args []byte, at int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.proposals) >= MaxCalls {
		c.lost++
		return -1
	}
	p := &proposal{id: id, tool: tool, args: canonical(args), command: commandOf(args)}
	c.proposals = append(c.proposals, p)
	if c.model != nil && c.model.Opens {
		if id == "" {
			id = fmt.Sprintf("proposal-%d", len(c.proposals)-1)
		}
		if k := c.call(id); k != nil && !k.ended {
			p.own, k.proposed = k, true
			k.tool = cmp.Or(k.tool, tool)
			c.begin(k, exactly(at), byModel)
		}
	}
	return len(c.proposals) - 1
}

// Recorded tells which line of the model layer has a proposal.
func (c *Correlator) Recorded(number int, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number >= 0 {
		c.proposals[number].seq = &seq
	}
}

// Answered tells that a request brought the result of a call at a time. If no proposal has the id, it is the first call
// of the tool that has none: Gemini CLI gives such calls ids of its own.
func (c *Correlator) Answered(id, tool string, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.proposals, func(p *proposal) bool { return id != "" && p.id == id })
	if i < 0 {
		i = slices.IndexFunc(c.proposals, func(p *proposal) bool { return p.id == "" && p.tool == tool && !p.answered })
	}
	if i < 0 || c.proposals[i].answered {
		return
	}
	p := c.proposals[i]
	p.answered = true
	if k := p.own; k != nil && k.begun == byModel && !k.ended {
		c.end(k, exactly(at))
	}
}

// canonical is the digest of a JSON value in its canonical form (RFC 8785).
func canonical(v []byte) []byte {
	own := jsontext.Value(bytes.Clone(v))
	if len(v) == 0 || own.Canonicalize() != nil {
		return nil
	}
	sum := sha256.Sum256(own)
	return sum[:]
}

// commandOf is the shell command in the arguments of a call, as shells write it: Codex's shell has an array of a
// shell's arguments, other tools have a text.
func commandOf(args []byte) string {
	var a struct {
		Command jsontext.Value `json:"command"`
		Cmd     jsontext.Value `json:"cmd"`
	}
	if json.Unmarshal(args, &a) != nil {
		return ""
	}
	for _, v := range []jsontext.Value{a.Command, a.Cmd} {
		var text string
		var argv []string
		switch {
		case json.Unmarshal(v, &text) == nil && text != "":
			return text
		case json.Unmarshal(v, &argv) == nil && joined(argv) != "":
			return strings.Join(argv[2:], "\x00")
		}
	}
	return ""
}

// Arguments tells the arguments of a call, as JSON.
func (c *Correlator) Arguments(id string, args []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls[id]; k != nil && k.args == nil {
		k.args = canonical(args)
	}
}

// sameTool reports whether a model's name of a tool is a call's: agents put the server's name before those of MCP.
func sameTool(proposed, called string) bool {
	return proposed == called || called != "" && strings.HasSuffix(proposed, "__"+called)
}

// join finds the proposal of each call that somebody told of: by its id, else by the tool's name and equal arguments or
// the same shell command, in order.
func (c *Correlator) join() {
	for _, p := range c.proposals {
		k := p.own
		if p.id != "" {
			k = c.calls[p.id]
		}
		if k != nil && k.proposal == nil {
			k.proposal, k.matchedBy = p, schema.MatchedByID
			p.called = k
		}
	}
	alike := []func(p *proposal, k *call) bool{
		func(p *proposal, k *call) bool {
			return sameTool(p.tool, k.tool) && p.args != nil && bytes.Equal(p.args, k.args)
		},
		func(p *proposal, k *call) bool {
			_, command, found := strings.Cut(k.argv, "\x00")
			return found && p.command == command && command != ""
		},
	}
	for _, same := range alike {
		for _, k := range c.order {
			if k.proposal != nil || !k.reported() {
				continue
			}
			i := slices.IndexFunc(c.proposals, func(p *proposal) bool {
				return (p.called == nil || !p.called.reported()) && same(p, k)
			})
			if i < 0 {
				continue
			}
			p := c.proposals[i]
			if own := p.called; own != nil {
				own.proposal, own.moved = nil, true // its events are those of the call that somebody told of
			}
			k.proposal, k.matchedBy, p.called = p, schema.MatchedByArguments, k
		}
	}
}

// chain lists where proposals and calls differ.
func (c *Correlator) chain(r *schema.CorrelationReport) {
	told := slices.ContainsFunc(c.order, (*call).reported)
	for _, p := range c.proposals {
		k := p.called
		if k != nil && k.reported() {
			if k.matchedBy == schema.MatchedByID && k.args != nil && p.args != nil && !bytes.Equal(k.args, p.args) {
				r.ArgumentsDiffer = append(r.ArgumentsDiffer,
					schema.Proposal{ToolCallID: k.id, Tool: p.tool, ModelSeq: p.seq})
			}
			continue
		}
		// Who tells of some tools alone, as an MCP server does, says nothing of the others.
		if c.sdk || told && !p.answered {
			r.ProposedNotCalled = append(r.ProposedNotCalled,
				schema.Proposal{ToolCallID: p.id, Tool: p.tool, ModelSeq: p.seq})
		}
	}
	for _, k := range c.order {
		if k.reported() && k.proposal == nil {
			r.CalledNotProposed = append(r.CalledNotProposed, schema.Proposal{ToolCallID: k.id, Tool: k.tool})
		}
	}
}
