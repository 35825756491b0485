package mcp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// codeDenied is the error code for denied calls. To clients with MCP's SDKs, -32001 would mean a timeout.
const codeDenied = -32010

// incoming is one message of a line, or why it cannot be read.
type incoming struct {
	raw jsontext.Value
	*jsonrpc.Message
	err error
}

// read splits a line into messages and decodes them.
func read(line []byte) (list []incoming, batch bool, err error) {
	parts, batch, err := jsonrpc.Split(line)
	if err != nil {
		return nil, false, err
	}
	list = make([]incoming, len(parts))
	for i, raw := range parts {
		m, err := jsonrpc.Decode(raw)
		list[i] = incoming{raw, m, err}
	}
	return list, batch, nil
}

// toolCall is a tools/call request.
type toolCall struct {
	Name      string
	Arguments jsontext.Value

	id     string // tool call id
	logged bool   // the run reads the decision from its log
}

// maxToolCallID limits a client's tool call id, in bytes. Readers of decision logs and environments have the same
// limit.
const maxToolCallID = agentlog.MaxID

func decodeCall(m *jsonrpc.Message) (*toolCall, error) {
	c := &toolCall{}
	if m.Params.Kind() != '{' {
		return nil, errors.New("tools/call needs params")
	}
	var name, meta jsontext.Value
	if err := jsonrpc.Members(m.Params, map[string]*jsontext.Value{
		"name": &name, "arguments": &c.Arguments, "_meta": &meta,
	}); err != nil {
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
		c.id = metaID(jsonrpc.Value(c.Arguments, "_meta"))
	}
	if c.id == "" {
		c.id = jsonrpc.IDText(m.ID)
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
	v := jsonrpc.Value(meta, "tool_call_id")
	if v.Kind() != '"' || json.Unmarshal(v, &id) != nil {
		return ""
	}
	return id
}

// denial is the answer to a call that the policy denies.
func denial(id jsontext.Value, found []policy.Violation) []byte {
	data, err := json.Marshal(map[string]any{"violations": found})
	if err != nil {
		data = nil
	}
	return errorResponse(id, codeDenied, fmt.Sprintf("denied by policy rule %q: %s", found[0].Rule, found[0].Reason),
		data)
}

// errorResponse is a JSON-RPC error response.
func errorResponse(id jsontext.Value, code int, text string, data []byte) []byte {
	return jsonrpc.AppendError(nil, id, &jsonrpc.Error{Code: code, Message: text, Data: data})
}

// unreadable returns what client and server get for a client's message that is not valid JSON, or that can be read in
// two ways. If the message expects an answer, the answer is an error with its id.
func unreadable(line []byte, why error) (toClient, toServer []byte) {
	id, response := jsonrpc.IDOf(line)
	text := errorResponse(id, jsonrpc.CodeParse, "assay-run: "+why.Error(), nil)
	if id != nil && response {
		return nil, text
	}
	return text, nil
}
