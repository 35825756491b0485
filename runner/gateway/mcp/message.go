package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/policy"
)

// Error codes of our own answers.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeDenied         = -32010 // -32001 is a time-out to the clients of MCP's own SDKs
)

// message is a JSON-RPC message, as far as the proxy looks at it.
type message struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  jsontext.Value `json:"error"`
}

// split takes a line apart: one message, or those of a batch. It refuses what
// is not valid JSON without duplicate keys.
func split(line []byte) (list []jsontext.Value, batch bool, err error) {
	raw := jsontext.Value(bytes.TrimSpace(line))
	if !raw.IsValid() {
		return nil, false, errors.New("the message is not valid JSON, or repeats a key")
	}
	if raw.Kind() != '[' {
		return []jsontext.Value{raw}, false, nil
	}
	err = json.Unmarshal(raw, &list)
	return list, true, err
}

func join(list []jsontext.Value) []byte {
	out := []byte{'['}
	for i, one := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	return append(out, ']')
}

// decode reads a message. Its id is set also with most errors.
func decode(raw jsontext.Value) (*message, error) {
	m := &message{}
	if raw.Kind() != '{' {
		return m, errors.New("a message must be an object")
	}
	if err := exactKeys(raw, "id", "method", "params", "result", "error", "jsonrpc"); err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw, m); err != nil {
		return m, fmt.Errorf("not a JSON-RPC message: %w", err)
	}
	switch m.ID.Kind() {
	case 0, '"', '0', 'n':
		return m, nil
	}
	m.ID = nil
	return m, errors.New("an id must be a string or a number")
}

// exactKeys refuses keys that only a parser that is lax about case would take
// for one of names.
func exactKeys(object jsontext.Value, names ...string) error {
	if object.Kind() != '{' {
		return nil
	}
	var keys map[string]jsontext.Value
	if err := json.Unmarshal(object, &keys); err != nil {
		return err
	}
	for k := range keys {
		if !slices.Contains(names, k) && slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, k) }) {
			return fmt.Errorf("the key %q is ambiguous: write keys in lower case", k)
		}
	}
	return nil
}

// toolCall is a tools/call.
type toolCall struct {
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Meta      jsontext.Value `json:"_meta"`

	id     string // of the tool call
	logged bool   // the run reads the decision in its log
}

// maxToolCallID bounds a client's tool call id, in bytes: no more is taken of one
// from a decision log or an environment.
const maxToolCallID = agentlog.MaxID

func decodeCall(m *message) (*toolCall, error) {
	c := &toolCall{}
	if m.Params.Kind() != '{' {
		return nil, errors.New("tools/call needs params")
	}
	if err := exactKeys(m.Params, "name", "arguments", "_meta"); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(m.Params, c); err != nil {
		return nil, fmt.Errorf("tools/call: %w", err)
	}
	if c.Name == "" || len(c.Name) > 128 {
		return nil, errors.New("tools/call: a tool name must have 1 to 128 bytes")
	}
	if c.id = metaID(c.Meta); c.id == "" {
		var a struct {
			Meta jsontext.Value `json:"_meta"`
		}
		if c.Arguments.Kind() == '{' && json.Unmarshal(c.Arguments, &a) == nil {
			c.id = metaID(a.Meta)
		}
	}
	if c.id == "" {
		c.id = idText(m.ID)
	}
	if strings.TrimSpace(c.id) == "" {
		c.id = ulid.Make().String() // a decision names its call
	}
	if len(c.id) > maxToolCallID {
		return nil, fmt.Errorf("tools/call: a tool_call_id must have at most %d bytes", maxToolCallID)
	}
	return c, nil
}

func metaID(meta jsontext.Value) string {
	var m struct {
		ToolCallID jsontext.Value `json:"tool_call_id"`
	}
	var id string
	if meta.Kind() != '{' || json.Unmarshal(meta, &m) != nil || m.ToolCallID.Kind() != '"' || json.Unmarshal(m.ToolCallID, &id) != nil {
		return ""
	}
	return id
}

// denial answers a call that the policy denies.
func denial(id jsontext.Value, found []policy.Violation) []byte {
	data, err := json.Marshal(map[string]any{"violations": found})
	if err != nil {
		data = nil
	}
	return errorResponse(id, codeDenied, fmt.Sprintf("denied by policy rule %q: %s", found[0].Rule, found[0].Reason), data)
}

type rpcError struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

// errorResponse is a JSON-RPC error response with the id as it was written: a
// client may tell its calls apart by ids that few programs can decode.
func errorResponse(id jsontext.Value, code int, text string, data []byte) []byte {
	if k := id.Kind(); k != '"' && k != '0' {
		id = jsontext.Value("null")
	}
	b, err := json.Marshal(&rpcError{code, text, data})
	if err != nil {
		b = fmt.Appendf(nil, `{"code":%d,"message":"assay-run: the call was refused"}`, code)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, id, b)
}

// idText is what an id says, however it is written.
func idText(id jsontext.Value) string {
	switch id.Kind() {
	case '"':
		if s, err := jsontext.AppendUnquote(nil, id); err == nil {
			return string(s)
		}
	case '0':
		if f, err := strconv.ParseFloat(string(id), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.FormatInt(int64(f), 10)
		}
	}
	return string(id)
}

// idKey is the same for all ways to write an id: a server repeats it in its own.
func idKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return `"` + idText(id)
	}
	return idText(id)
}

// otherKey is the key of an id as if a string were the number that it spells, or a
// number were a string.
func otherKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return strings.TrimLeft(idText(id), `"`)
	}
	return `"` + idText(id)
}

// unreadable is what the two sides are told of a message of the client that is not
// valid JSON, or says one thing twice: who waits for an answer gets it by its id.
func unreadable(line []byte, why error) (toClient, toServer []byte) {
	id, response := idOf(line)
	text := errorResponse(id, codeParse, "assay-run: "+why.Error(), nil)
	if id != nil && response {
		return nil, text
	}
	return text, nil
}

// idOf is the id that a message has, as far as it can be read, and whether it is a
// response.
func idOf(line []byte) (id jsontext.Value, response bool) { return rpc.IDOf(line) }
