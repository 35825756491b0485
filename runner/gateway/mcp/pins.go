package mcp

import (
	"crypto/sha256"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// maxPins limits the remembered tools.
const maxPins = 10_000

// changedRule is the rule that denies a tool that changed.
const changedRule = "tools.changed"

// pins remembers each tool as it was first listed, with description and schema: a server must not change a tool that
// somebody has reviewed.
type pins struct {
	off bool

	mu    sync.Mutex
	first map[string][sha256.Size]byte
	other map[string]bool // tools that have changed, by policy.Alike of the name
}

// list remembers a listed tool and reports whether it is unchanged. news means that the change is new.
func (p *pins) list(name string, tool jsontext.Value) (same, news bool) {
	text := tool.Clone()
	if p.off || text.Canonicalize() != nil {
		return true, false
	}
	sum := sha256.Sum256(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		p.first, p.other = map[string][sha256.Size]byte{}, map[string]bool{}
	}
	first, known := p.first[name]
	switch {
	case !known && len(p.first) < maxPins:
		p.first[name] = sum
		return true, false
	case !known:
		return false, false
	case first == sum && !p.other[policy.Alike(name)]:
		return true, false
	}
	news = !p.other[policy.Alike(name)]
	p.other[policy.Alike(name)] = true
	return false, news
}

// changed reports whether a tool has changed since it was first listed.
func (p *pins) changed(name string) (policy.Violation, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return policy.Violation{
		Rule: changedRule, Kind: policyfile.DenyTool, Reason: "the server changed the tool after it was first listed",
	}, p.other[policy.Alike(name)]
}
