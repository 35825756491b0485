package rpc

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Error codes of our own.
const (
	// CodeBusy answers a client when there is too much at once, or too many of
	// them: it may try again.
	CodeBusy    = -32001
	CodeClosing = -32005 // the server is going away
)

// decode reads one message. Its values point into b.
func decode(b []byte, maxDepth int) (*jsonrpc.Message, *jsonrpc.Error) {
	if err := jsonrpc.CheckText(b, maxDepth); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v", err)
	}
	m, err := jsonrpc.Decode(b)
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParse, "not valid JSON: %s", jsonrpc.Brief(err))
	}
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", jsonrpc.Brief(err))
	}
	return m, nil
}

// Decode reads the parameters strictly: unknown and duplicate keys are errors
// that name them.
func (r *Request) Decode(into any) *jsonrpc.Error {
	raw := r.Params
	if raw == nil {
		raw = jsontext.Value("{}")
	}
	if raw.Kind() != '{' {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params must be an object")
	}
	if err := json.Unmarshal(raw, into, json.RejectUnknownMembers(true)); err != nil {
		var sem *json.SemanticError
		if errors.As(err, &sem) && sem.JSONPointer != "" {
			if errors.Is(err, json.ErrUnknownName) {
				return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params%.100s: unknown key", sem.JSONPointer)
			}
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params%.100s: %s", sem.JSONPointer, jsonrpc.Brief(err))
		}
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params: %s", jsonrpc.Brief(err))
	}
	return nil
}
