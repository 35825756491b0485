package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Error codes: those of JSON-RPC 2.0, and ours.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeNoRun          = -32002 // no such run, or none is open
	codeRunState       = -32003 // the run's state does not allow it
	codeNotRecorded    = -32004 // the evidence could not be written
	codeClosing        = -32005 // the gateway is going away
	codeNotJoined      = -32006 // the process stays where it is
	codeCancelled      = -32800
)

// CodeBusy answers a client when there is too much at once, or too many of them:
// it may try again.
const CodeBusy = -32001

// rpcError is the error of a response.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

func errorf(code int, format string, args ...any) *rpcError {
	return &rpcError{code, fmt.Sprintf(format, args...)}
}

// message is a request, a notification or a response.
type message struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  *string        `json:"method"`
	Params  jsontext.Value `json:"params"`
	Result  jsontext.Value `json:"result"`
	Error   jsontext.Value `json:"error"`
}

// maxID bounds a request's id, which we keep and repeat.
const maxID = 256

// decodeMessage reads one message. What it returns points into fresh memory.
func decodeMessage(b []byte, maxDepth int) (*message, *rpcError) {
	if err := scan(b, maxDepth); err != nil {
		return nil, errorf(codeInvalidRequest, "%v", err)
	}
	m := &message{}
	if err := json.Unmarshal(b, m); err != nil {
		var syntax *jsontext.SyntacticError
		if errors.As(err, &syntax) {
			return nil, errorf(codeParse, "not valid JSON: %s", brief(err))
		}
		return nil, errorf(codeInvalidRequest, "not a JSON-RPC message: %s", brief(err))
	}
	switch m.ID.Kind() {
	case 0, '"', '0', 'n':
	default:
		return nil, errorf(codeInvalidRequest, "id must be a string, a number or null")
	}
	switch {
	case len(m.ID) > maxID:
		return nil, errorf(codeInvalidRequest, "id has more than %d bytes", maxID)
	case m.JSONRPC != "2.0":
		return nil, errorf(codeInvalidRequest, `jsonrpc must be "2.0"`)
	case m.Method != nil && (m.Result != nil || m.Error != nil):
		return nil, errorf(codeInvalidRequest, "a message has a method, a result or an error: one of them")
	case m.Method == nil && (m.Result == nil) == (m.Error == nil):
		return nil, errorf(codeInvalidRequest, "a message has a method, a result or an error: one of them")
	case m.Method == nil && m.ID == nil:
		return nil, errorf(codeInvalidRequest, "a response needs the id of its request")
	}
	return m, nil
}

// idOf finds the id of a message that decodeMessage refuses, so that whoever waits
// for it is told: the client, or for a response the call that it answers. It looks
// as far as the message is JSON.
func idOf(b []byte) (id jsontext.Value, response bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, false
	}
	request := false
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			break
		}
		name := t.String()
		request = request || name == "method"
		response = response || name == "result" || name == "error"
		v, err := d.ReadValue()
		if err != nil {
			break
		}
		if name == "id" {
			if id != nil {
				return nil, false
			}
			id = v.Clone()
		}
	}
	if k := id.Kind(); k != '"' && k != '0' || len(id) > maxID || !utf8.Valid(id) {
		return nil, false
	}
	return id, response && !request
}

// brief is an error fit for a message to a client.
func brief(err error) string {
	const most = 300
	s := err.Error()
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// decodeParams reads a method's parameters strictly: unknown and duplicate
// keys are errors that name them.
func decodeParams(raw jsontext.Value, into any) *rpcError {
	if raw == nil {
		raw = jsontext.Value("{}")
	}
	if raw.Kind() != '{' {
		return errorf(codeInvalidParams, "params must be an object")
	}
	if err := json.Unmarshal(raw, into, json.RejectUnknownMembers(true)); err != nil {
		var sem *json.SemanticError
		if errors.As(err, &sem) && sem.JSONPointer != "" {
			if errors.Is(err, json.ErrUnknownName) {
				return errorf(codeInvalidParams, "params%.100s: unknown key", sem.JSONPointer)
			}
			return errorf(codeInvalidParams, "params%.100s: %s", sem.JSONPointer, brief(err))
		}
		return errorf(codeInvalidParams, "params: %s", brief(err))
	}
	return nil
}

// appendResponse appends a response line.
func appendResponse(dst []byte, id jsontext.Value, result any, failure *rpcError) []byte {
	if id == nil {
		id = jsontext.Value("null")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	if failure == nil {
		body, err := json.Marshal(result)
		if err == nil {
			dst = append(dst, `,"result":`...)
			dst = append(dst, body...)
			return append(dst, '}')
		}
		failure = errorf(codeInternal, "the result cannot be encoded: %s", brief(err))
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(failure.Code), 10)
	dst = append(dst, `,"message":`...)
	dst, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(failure.Message, "\ufffd"))
	return append(dst, "}}"...)
}

// appendRequest appends a request line, or a notification for id 0.
func appendRequest(dst []byte, id uint64, method string, params any) ([]byte, error) {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id > 0 {
		dst = append(dst, `"id":`...)
		dst = strconv.AppendUint(dst, id, 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":`...)
	body, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	dst = append(dst, body...)
	return append(dst, '}'), nil
}
