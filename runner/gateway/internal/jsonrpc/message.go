package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Error codes of JSON-RPC 2.0.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// Error is the error in a response.
type Error struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an error for a response.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Brief returns an error's text, shortened for a message.
func Brief(err error) string {
	const most = 300
	s := err.Error()
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// Message is a request, a notification or a response. Its values point into the text that it was decoded from. Nil
// means that the member is missing.
type Message struct {
	Version string // "2.0", or "" if there is none
	ID      jsontext.Value
	Method  string
	Params  jsontext.Value
	Result  jsontext.Value
	Error   jsontext.Value

	hasMethod bool // even if it is ""
}

// Decode decodes one message. It accepts messages that [Message.Check] refuses. With most errors, ID is still set. If
// the text is not valid JSON or repeats a key, the error wraps a [jsontext.SyntacticError].
func Decode(raw jsontext.Value) (*Message, error) {
	m := &Message{}
	var version, method jsontext.Value
	err := Members(raw, map[string]*jsontext.Value{
		"jsonrpc": &version, "id": &m.ID, "method": &method, "params": &m.Params, "result": &m.Result,
		"error": &m.Error,
	})
	switch m.ID.Kind() {
	case 0, '"', '0', 'n':
	default:
		m.ID = nil
		err = errors.Join(err, errors.New("an id must be a string or a number"))
	}
	if version.Kind() == '"' {
		m.Version, _ = text(version)
	}
	if method != nil && method.Kind() != 'n' {
		if method.Kind() != '"' {
			return m, errors.Join(err, errors.New("a method must be a string"))
		}
		var merr error
		m.Method, merr = text(method)
		m.hasMethod, err = true, errors.Join(err, merr)
	}
	return m, err
}

// IsRequest reports whether the message is a request or a notification, not a response.
func (m *Message) IsRequest() bool { return m.hasMethod }

// Check returns why the message is not valid JSON-RPC 2.0, or nil.
func (m *Message) Check() error {
	answers := 0
	for _, v := range []jsontext.Value{m.Result, m.Error} {
		if v != nil {
			answers++
		}
	}
	switch {
	case len(m.ID) > maxID:
		return fmt.Errorf("id has more than %d bytes", maxID)
	case m.Version != "2.0":
		return errors.New(`jsonrpc must be "2.0"`)
	case m.hasMethod && answers > 0, !m.hasMethod && answers != 1:
		return errors.New("a message must have exactly one of method, result and error")
	case !m.hasMethod && m.ID == nil:
		return errors.New("a response needs the id of its request")
	}
	return nil
}

// Split splits a text into its messages: one, or those of a batch. It refuses invalid JSON and duplicate keys.
func Split(raw []byte) (list []jsontext.Value, batch bool, err error) {
	v := jsontext.Value(bytes.TrimSpace(raw))
	if !v.IsValid() {
		return nil, false, errors.New("the message is not valid JSON, or repeats a key")
	}
	if v.Kind() != '[' {
		return []jsontext.Value{v}, false, nil
	}
	err = json.Unmarshal(v, &list)
	return list, true, err
}

// Join joins messages into a batch.
func Join(list []jsontext.Value) []byte {
	out := []byte{'['}
	for i, one := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	return append(out, ']')
}

// AppendResult appends a response with a result, or with an error if the result cannot be encoded.
func AppendResult(dst []byte, id jsontext.Value, result any) []byte {
	body, err := json.Marshal(result)
	if err != nil {
		return AppendError(dst, id, Errorf(CodeInternal, "the result cannot be encoded: %s", Brief(err)))
	}
	return appendResponse(dst, id, "result", body)
}

// AppendError appends a response with an error: an [*Error], or encoded JSON.
func AppendError(dst []byte, id jsontext.Value, failure any) []byte {
	body, err := json.Marshal(failure, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		body = fmt.Appendf(nil, `{"code":%d,"message":"the error cannot be encoded"}`, CodeInternal)
	}
	return appendResponse(dst, id, "error", body)
}

// appendResponse repeats the id exactly as the client wrote it, since few programs can decode some ids.
func appendResponse(dst []byte, id jsontext.Value, member string, body []byte) []byte {
	if k := id.Kind(); k != '"' && k != '0' {
		id = jsontext.Value("null")
	}
	const head = `{"jsonrpc":"2.0","id":`
	dst = slices.Grow(dst, len(head)+len(id)+len(body)+16)
	dst = append(append(dst, head...), id...)
	dst = append(append(append(dst, `,"`...), member...), `":`...)
	return append(append(dst, body...), '}')
}

// AppendRequest appends a request or, if id is nil, a notification.
func AppendRequest(dst []byte, id jsontext.Value, method string, params any) ([]byte, error) {
	body, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	dst = slices.Grow(dst, len(body)+len(method)+80)
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(append(append(dst, `"id":`...), id...), ',')
	}
	dst = append(append(append(dst, `"method":"`...), method...), `","params":`...)
	return append(append(dst, body...), '}'), nil
}
