package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// Error codes of our own answers.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeDenied         = -32010 // -32001 is a time-out to the clients of MCP's own SDKs
)

// message has the parts of a JSON-RPC message that the proxy looks at.
type message struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  jsontext.Value `json:"error"`
}

// split splits a line into its messages: one, or those of a batch. It refuses what is
// not valid JSON, and JSON with duplicate keys.
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

// incoming is one message of a line, and why it cannot be read.
type incoming struct {
	raw jsontext.Value
	*message
	err error
}

// read splits a line and decodes its messages.
func read(line []byte) (list []incoming, batch bool, err error) {
	parts, batch, err := split(line)
	if err != nil {
		return nil, false, err
	}
	list = make([]incoming, len(parts))
	for i, raw := range parts {
		m, err := decode(raw)
		list[i] = incoming{raw, m, err}
	}
	return list, batch, nil
}

// decode decodes a message. Its values point into raw. With most errors, the id is still
// set.
func decode(raw jsontext.Value) (*message, error) {
	m := &message{}
	if raw.Kind() != '{' {
		return m, errors.New("a message must be an object")
	}
	var method jsontext.Value
	err := members(raw, member{"id", &m.ID}, member{"method", &method}, member{"params", &m.Params}, member{"result", &m.Result}, member{"error", &m.Error}, member{"jsonrpc", nil})
	switch m.ID.Kind() {
	case 0, '"', '0', 'n':
	default:
		m.ID = nil
		err = errors.Join(err, errors.New("an id must be a string or a number"))
	}
	if method != nil {
		merr := json.Unmarshal(method, &m.Method)
		if merr != nil {
			merr = fmt.Errorf("not a JSON-RPC message: %w", merr)
		}
		err = errors.Join(err, merr)
	}
	return m, err
}

// toolCall is a tools/call.
type toolCall struct {
	Name      string
	Arguments jsontext.Value

	id     string // of the tool call
	logged bool   // the run reads the decision from its log
}

// maxToolCallID bounds a client's tool call id, in bytes. The readers of decision logs
// and environments have the same bound.
const maxToolCallID = agentlog.MaxID

func decodeCall(m *message) (*toolCall, error) {
	c := &toolCall{}
	if m.Params.Kind() != '{' {
		return nil, errors.New("tools/call needs params")
	}
	var name, meta jsontext.Value
	if err := members(m.Params, member{"name", &name}, member{"arguments", &c.Arguments}, member{"_meta", &meta}); err != nil {
		return nil, err
	}
	if name != nil {
		if err := json.Unmarshal(name, &c.Name); err != nil {
			return nil, fmt.Errorf("tools/call: %w", err)
		}
	}
	if c.Name == "" || len(c.Name) > 128 {
		return nil, errors.New("tools/call: a tool name must have 1 to 128 bytes")
	}
	if c.id = metaID(meta); c.id == "" {
		c.id = metaID(value(c.Arguments, "_meta"))
	}
	if c.id == "" {
		c.id = idText(m.ID)
	}
	if strings.TrimSpace(c.id) == "" {
		c.id = schema.NewID() // every decision names a call
	}
	if len(c.id) > maxToolCallID {
		return nil, fmt.Errorf("tools/call: a tool_call_id must have at most %d bytes", maxToolCallID)
	}
	return c, nil
}

func metaID(meta jsontext.Value) (id string) {
	v := value(meta, "tool_call_id")
	if v.Kind() != '"' || json.Unmarshal(v, &id) != nil {
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

// errorResponse is a JSON-RPC error response. It repeats the id as it was written,
// because a client may use ids that few programs can decode.
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

// idText is the text of an id, however it is escaped.
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

// idKey is equal for all spellings of an id: a server may repeat an id in another
// spelling.
func idKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return `"` + idText(id)
	}
	return idText(id)
}

// otherKey is the key of the id's other form: of the number that a string spells, or of
// the string that spells a number.
func otherKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return strings.TrimLeft(idText(id), `"`)
	}
	return `"` + idText(id)
}

// unreadable returns what the two sides are told about a message of the client that is
// not valid JSON, or that can be read in two ways. Whoever waits for an answer gets an
// error with its id.
func unreadable(line []byte, why error) (toClient, toServer []byte) {
	id, response := idOf(line)
	text := errorResponse(id, codeParse, "assay-run: "+why.Error(), nil)
	if id != nil && response {
		return nil, text
	}
	return text, nil
}

// idOf returns the id of a message, if it can be read, and whether the message is a
// response.
func idOf(line []byte) (id jsontext.Value, response bool) { return rpc.IDOf(line) }
