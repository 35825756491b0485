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

// Model is what the model gateway knows about calls that models proposed. Both functions are called while events are
// bound.
type Model struct {
	// Known makes sure that everything that passed before t, in nanoseconds since run_started, has been passed in,
	// except for answers that have not ended.
	Known func(t int64)
	// Unsettled reports whether a part of an answer that has not ended passed before t.
	Unsettled func(t int64) bool
	// Opens means that nothing else says when calls begin.
	Opens bool
}

// proposal is a tool call in the answer of a model.
type proposal struct {
	id, tool string
	args     []byte // digest of the canonical arguments; nil: none, or not JSON
	command  string // of a shell; empty: none
	seq      *uint64
	own      *call // the call that it opened, or nil
	called   *call // the call that it proposed; nil: not known
	answered bool
	failed   bool // the result is an error
}

// canonical returns the digest of a JSON value's canonical form (RFC 8785).
func canonical(v []byte) []byte {
	own := jsontext.Value(bytes.Clone(v))
	if len(v) == 0 || own.Canonicalize() != nil {
		return nil
	}
	sum := sha256.Sum256(own)
	return sum[:]
}

// commandOf returns the shell command in the arguments of a call. Codex's shell tool has an array of a shell's
// arguments, other tools have a text.
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

// sameTool reports whether a model's name for a tool means the tool of a call: agents prepend the server's name to
// MCP tools.
func sameTool(proposed, called string) bool {
	return proposed == called || called != "" && strings.HasSuffix(proposed, "__"+called)
}

// proposals are the tool calls that models proposed, in the order in which they were passed on.
type proposals struct {
	calls   *calls
	windows *windows
	opens   bool // see Model.Opens
	list    []*proposal
}

func newProposals(calls *calls, windows *windows) *proposals {
	return &proposals{calls: calls, windows: windows}
}

// add adds a proposal that was passed on at a time, and returns its number; -1: there are too many.
func (p *proposals) add(id, tool string, args []byte, at int64) int {
	if len(p.list) >= MaxCalls {
		p.calls.lost++
		return -1
	}
	m := &proposal{id: id, tool: tool, args: canonical(args), command: commandOf(args)}
	p.list = append(p.list, m)
	if p.opens {
		if id == "" {
			id = fmt.Sprintf("proposal-%d", len(p.list)-1)
		}
		if k := p.calls.call(id); k != nil && !k.ended {
			m.own, k.proposed = k, true
			k.tool = cmp.Or(k.tool, tool)
			p.windows.begin(k, exactly(at), byModel)
		}
	}
	return len(p.list) - 1
}

// answered notes that the result of a call came at a time. If no proposal has the id, the first one of the tool without
// an id is meant.
func (p *proposals) answered(id, tool string, failed bool, at int64) {
	i := slices.IndexFunc(p.list, func(m *proposal) bool { return id != "" && m.id == id })
	if i < 0 {
		i = slices.IndexFunc(p.list, func(m *proposal) bool { return m.id == "" && m.tool == tool && !m.answered })
	}
	if i < 0 || p.list[i].answered {
		return
	}
	m := p.list[i]
	m.answered, m.failed = true, failed
	if k := m.own; k != nil && k.begun == byModel && !k.ended {
		p.windows.end(k, exactly(at))
	}
}

// join finds the proposal of each reported call: by its id, otherwise by the tool's name and equal arguments or the
// same shell command, in order.
func (p *proposals) join() {
	for _, m := range p.list {
		k := m.own
		if m.id != "" {
			k = p.calls.byID[m.id]
		}
		if k != nil && k.proposal == nil {
			k.proposal, k.matchedBy = m, schema.MatchedByID
			m.called = k
		}
	}
	alike := []func(m *proposal, k *call) bool{
		func(m *proposal, k *call) bool {
			return sameTool(m.tool, k.tool) && m.args != nil && bytes.Equal(m.args, k.args)
		},
		func(m *proposal, k *call) bool {
			_, command, found := strings.Cut(k.argv, "\x00")
			return found && m.command == command && command != ""
		},
	}
	for _, same := range alike {
		for _, k := range p.calls.order {
			if k.proposal != nil || !k.reported() {
				continue
			}
			i := slices.IndexFunc(p.list, func(m *proposal) bool {
				return (m.called == nil || !m.called.reported()) && same(m, k)
			})
			if i < 0 {
				continue
			}
			m := p.list[i]
			if own := m.called; own != nil {
				own.proposal, own.moved = nil, true // its events belong to the reported call
			}
			k.proposal, k.matchedBy, m.called = m, schema.MatchedByArguments, k
		}
	}
}

// chain lists where proposals and calls differ.
func (p *proposals) chain(r *schema.CorrelationReport, sdk bool) {
	told := slices.ContainsFunc(p.calls.order, (*call).reported)
	for _, m := range p.list {
		k := m.called
		if k != nil && k.reported() {
			if k.matchedBy == schema.MatchedByID && k.args != nil && m.args != nil && !bytes.Equal(k.args, m.args) {
				r.ArgumentsDiffer = append(r.ArgumentsDiffer,
					schema.Proposal{ToolCallID: k.id, Tool: m.tool, ModelSeq: m.seq})
			}
			continue
		}
		// A reporter of only some tools, such as an MCP server, says nothing about the others.
		if sdk || told && !m.answered {
			r.ProposedNotCalled = append(r.ProposedNotCalled,
				schema.Proposal{ToolCallID: m.id, Tool: m.tool, ModelSeq: m.seq})
		}
	}
	for _, k := range p.calls.order {
		if k.reported() && k.proposal == nil {
			r.CalledNotProposed = append(r.CalledNotProposed, schema.Proposal{ToolCallID: k.id, Tool: k.tool})
		}
	}
}
