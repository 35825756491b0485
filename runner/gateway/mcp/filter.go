package mcp

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// lists maps each request whose answer is a list to the member that holds the list.
var lists = map[string]string{"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}

// filter removes what may not be used from the answer to a list request. All other
// bytes of the answer stay.
func (p *Proxy) filter(method string, raw, result jsontext.Value) (jsontext.Value, bool) {
	member, isList := lists[method]
	var r map[string]jsontext.Value
	if !isList || result.Kind() != '{' || json.Unmarshal(result, &r) != nil {
		return nil, false
	}
	var items []jsontext.Value
	if r[member].Kind() != '[' || json.Unmarshal(r[member], &items) != nil {
		return nil, false
	}
	kept := make([]jsontext.Value, 0, len(items))
	for _, item := range items {
		if p.listed(method, item) {
			kept = append(kept, item)
		}
	}
	if len(kept) == len(items) {
		return nil, false
	}
	return replace(raw, jsontext.Pointer("/result/"+member), jsonrpc.Join(kept))
}

// listed reports whether an item of a list may be used.
func (p *Proxy) listed(method string, item jsontext.Value) bool {
	var i struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
	if json.Unmarshal(item, &i) != nil {
		return true
	}
	switch method {
	case "resources/list":
		return len(p.rules.set.CheckName(policy.Resources, i.URI)) == 0
	case "prompts/list":
		return len(p.rules.set.CheckName(policy.Prompts, i.Name)) == 0
	}
	same, news := p.rules.pins.list(i.Name, item)
	if news {
		p.warn("the MCP server changed the tool " + i.Name + " after it was first listed: calls of it are denied (--allow-tool-changes allows them)")
	}
	return same && !p.rules.set.Forbidden(i.Name)
}

// withID returns the message with another id.
func withID(raw, id jsontext.Value) jsontext.Value {
	if m, ok := replace(raw, "/id", id); ok {
		return m
	}
	return raw
}

// replace replaces a value of a message. The message's own decoder finds its place.
func replace(raw jsontext.Value, at jsontext.Pointer, value []byte) (jsontext.Value, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		if k, n := d.StackIndex(d.StackDepth()); d.StackPointer() == at && k == '{' && n%2 == 1 {
			old, err := d.ReadValue()
			if err != nil {
				return nil, false
			}
			end := d.InputOffset()
			out := append([]byte{}, raw[:end-int64(len(old))]...)
			out = append(out, value...)
			return append(out, raw[end:]...), true
		}
		if _, err := d.ReadToken(); err != nil {
			return nil, false
		}
	}
}
