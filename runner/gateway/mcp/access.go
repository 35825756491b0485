package mcp

import (
	"errors"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// target is what a request other than tools/call asks for, as the policy names it.
func target(m *jsonrpc.Message) (kind policy.Kind, name string, err error) {
	var p struct {
		URI  *string        `json:"uri"`
		Name *string        `json:"name"`
		Ref  jsontext.Value `json:"ref"`
	}
	switch m.Method {
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		kind = policy.Resources
	case "prompts/get":
		kind = policy.Prompts
	case "completion/complete":
	default:
		return "", "", nil
	}
	if m.Params.Kind() != '{' {
		return "", "", errors.New(m.Method + " needs params")
	}
	if err := jsonrpc.ExactKeys(m.Params, "uri", "name", "ref"); err != nil {
		return "", "", err
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return "", "", errors.New(m.Method + ": params cannot be read")
	}
	if m.Method == "completion/complete" {
		if p.Ref.Kind() != '{' || jsonrpc.ExactKeys(p.Ref, "uri", "name") != nil || json.Unmarshal(p.Ref, &p) != nil {
			return "", "", errors.New("completion/complete: ref cannot be read")
		}
		if kind = policy.Prompts; p.URI != nil {
			kind = policy.Resources
		}
	}
	switch {
	case kind == policy.Resources && p.URI != nil:
		return kind, *p.URI, nil
	case kind == policy.Prompts && p.Name != nil:
		return kind, *p.Name, nil
	}
	return "", "", errors.New(m.Method + ": the request does not name a resource or a prompt")
}

// access decides a request for a resource or a prompt. Other requests pass.
func (p *Proxy) access(m *jsonrpc.Message) (answer []byte, pass bool) {
	kind, name, err := target(m)
	if err != nil {
		return errorResponse(m.ID, jsonrpc.CodeInvalidParams, "assay-run: "+err.Error(), nil), false
	}
	if kind == "" {
		return nil, true
	}
	return p.decide(m, kind, name)
}

// serverAsks decides a request of the server to the client, by its method:
// sampling/createMessage, elicitation/create, roots/list. Notifications pass.
func (p *Proxy) serverAsks(m *jsonrpc.Message) (answer []byte, pass bool) {
	if m.ID == nil || m.Method == "ping" {
		return nil, true
	}
	return p.decide(m, policy.ServerRequests, m.Method)
}

// inputs decides what a server asks of the client in the result of a request (MCP's
// 2026-07-28 and later), as serverAsks does. If it may not pass, the client gets answer
// instead.
func (p *Proxy) inputs(id, result jsontext.Value) (answer []byte, pass bool) {
	if result.Kind() != '{' || !p.rules.set.Lists(policy.ServerRequests) {
		return nil, true
	}
	var r struct {
		Inputs jsontext.Value `json:"inputRequests"`
	}
	var asked map[string]jsontext.Value
	if jsonrpc.ExactKeys(result, "inputRequests") != nil || json.Unmarshal(result, &r) != nil || r.Inputs.Kind() == '{' && json.Unmarshal(r.Inputs, &asked) != nil {
		return unreadableInputs(id), false
	}
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		method := jsonrpc.Value(asked[key], "method")
		m := &jsonrpc.Message{ID: id}
		if jsonrpc.ExactKeys(asked[key], "method") != nil || method.Kind() != '"' ||
			json.Unmarshal(method, &m.Method) != nil || m.Method == "" {
			return unreadableInputs(id), false
		}
		if answer, pass := p.decide(m, policy.ServerRequests, m.Method); !pass {
			return answer, false
		}
	}
	return nil, true
}

func unreadableInputs(id jsontext.Value) []byte {
	return errorResponse(id, codeDenied, "assay-run: what the MCP server asks for in its result cannot be read, so it is denied", nil)
}

func (p *Proxy) decide(m *jsonrpc.Message, kind policy.Kind, name string) (answer []byte, pass bool) {
	found := p.rules.set.CheckName(kind, name)
	if len(found) == 0 && !p.rules.set.Lists(kind) {
		return nil, true // nothing was decided
	}
	c := &toolCall{Name: m.Method + " " + name, id: jsonrpc.IDText(m.ID)}
	if kind == policy.ServerRequests {
		c.Name = name
	}
	if err := p.logDecision(c, found); err != nil {
		p.warn(err.Error())
		return errorResponse(m.ID, codeDenied, "assay-run: the decision about this request could not be recorded, so it is denied", nil), false
	}
	if len(found) > 0 {
		if m.ID == nil {
			return nil, false
		}
		return denial(m.ID, found), false
	}
	return nil, true
}
