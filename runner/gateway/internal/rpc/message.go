package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Error codes: those of JSON-RPC 2.0, and two of ours.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeBusy answers a client when there is too much at once, or too many of
	// them: it may try again.
	CodeBusy    = -32001
	CodeClosing = -32005 // the server is going away
)

// Error is the error of a response.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf is an error for a response.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// frame is a request, a notification or a response.
type frame struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  *string        `json:"method"`
	Params  jsontext.Value `json:"params"`
	Result  jsontext.Value `json:"result"`
	Error   jsontext.Value `json:"error"`
}

// maxID bounds a request's id, which we keep and repeat.
const maxID = 256

// decodeFrame reads one message. What it returns points into fresh memory.
func decodeFrame(b []byte, maxDepth int) (*frame, *Error) {
	if err := checkText(b, maxDepth); err != nil {
		return nil, Errorf(CodeInvalidRequest, "%v", err)
	}
	m := &frame{}
	if err := json.Unmarshal(b, m); err != nil {
		var syntax *jsontext.SyntacticError
		if errors.As(err, &syntax) {
			return nil, Errorf(CodeParse, "not valid JSON: %s", Brief(err))
		}
		if jsontext.Value(b).Kind() != '{' {
			return nil, Errorf(CodeInvalidRequest, "a message must be an object")
		}
		return nil, Errorf(CodeInvalidRequest, "not a JSON-RPC message: %s", Brief(err))
	}
	switch m.ID.Kind() {
	case 0, '"', '0', 'n':
	default:
		return nil, Errorf(CodeInvalidRequest, "id must be a string, a number or null")
	}
	switch {
	case len(m.ID) > maxID:
		return nil, Errorf(CodeInvalidRequest, "id has more than %d bytes", maxID)
	case m.JSONRPC != "2.0":
		return nil, Errorf(CodeInvalidRequest, `jsonrpc must be "2.0"`)
	case m.Method != nil && (m.Result != nil || m.Error != nil):
		return nil, Errorf(CodeInvalidRequest, "a message must have exactly one of method, result and error")
	case m.Method == nil && (m.Result == nil) == (m.Error == nil):
		return nil, Errorf(CodeInvalidRequest, "a message must have exactly one of method, result and error")
	case m.Method == nil && m.ID == nil:
		return nil, Errorf(CodeInvalidRequest, "a response needs the id of its request")
	}
	return m, nil
}

// IDOf finds the id of a message that decodeFrame refuses, so that whoever waits
// for it is told: the client, or for a response the call that it answers. It looks
// as far as the message is JSON.
func IDOf(b []byte) (id jsontext.Value, response bool) {
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

// Brief is an error fit for a message to a client.
func Brief(err error) string {
	const most = 300
	s := err.Error()
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// Decode reads the parameters strictly: unknown and duplicate keys are errors
// that name them.
func (r *Request) Decode(into any) *Error {
	raw := r.Params
	if raw == nil {
		raw = jsontext.Value("{}")
	}
	if raw.Kind() != '{' {
		return Errorf(CodeInvalidParams, "params must be an object")
	}
	if err := json.Unmarshal(raw, into, json.RejectUnknownMembers(true)); err != nil {
		var sem *json.SemanticError
		if errors.As(err, &sem) && sem.JSONPointer != "" {
			if errors.Is(err, json.ErrUnknownName) {
				return Errorf(CodeInvalidParams, "params%.100s: unknown key", sem.JSONPointer)
			}
			return Errorf(CodeInvalidParams, "params%.100s: %s", sem.JSONPointer, Brief(err))
		}
		return Errorf(CodeInvalidParams, "params: %s", Brief(err))
	}
	return nil
}

// appendResponse appends a response line.
func appendResponse(dst []byte, id jsontext.Value, result any, failure *Error) []byte {
	if id == nil {
		id = jsontext.Value("null")
	}
	const head = `{"jsonrpc":"2.0","id":`
	if failure == nil {
		body, err := json.Marshal(result)
		if err == nil {
			dst = slices.Grow(dst, len(head)+len(id)+len(body)+16)
			dst = append(dst, head...)
			dst = append(dst, id...)
			dst = append(dst, `,"result":`...)
			dst = append(dst, body...)
			return append(dst, '}')
		}
		failure = Errorf(CodeInternal, "the result cannot be encoded: %s", Brief(err))
	}
	dst = append(dst, head...)
	dst = append(dst, id...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(failure.Code), 10)
	dst = append(dst, `,"message":`...)
	dst, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(failure.Message, "\ufffd"))
	return append(dst, "}}"...)
}

// appendRequest appends a request line, or a notification for id 0.
func appendRequest(dst []byte, id uint64, method string, params any) ([]byte, error) {
	body, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	dst = slices.Grow(dst, len(body)+len(method)+80)
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id > 0 {
		dst = append(dst, `"id":"`...)
		dst = strconv.AppendUint(dst, id, 10)
		dst = append(dst, `",`...)
	}
	dst = append(dst, `"method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":`...)
	dst = append(dst, body...)
	return append(dst, '}'), nil
}
