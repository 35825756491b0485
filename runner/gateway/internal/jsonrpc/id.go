package jsonrpc

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxID bounds a request's id, in bytes: the receiver keeps and repeats it.
const maxID = 256

// text is the text of a JSON string.
func text(v jsontext.Value) (string, error) {
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err
}

// IDText is the text of an id, however it is escaped.
func IDText(id jsontext.Value) string {
	switch id.Kind() {
	case '"':
		if s, err := text(id); err == nil {
			return s
		}
	case '0':
		if f, err := strconv.ParseFloat(string(id), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.FormatInt(int64(f), 10)
		}
	}
	return string(id)
}

// IDKey is equal for all spellings of an id: an answer may repeat the id of its request in another spelling.
func IDKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return `"` + IDText(id)
	}
	return IDText(id)
}

// OtherKey is the key of the id's other form: of the number that a string spells, or of the string that spells a
// number.
func OtherKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return strings.TrimLeft(IDText(id), `"`)
	}
	return `"` + IDText(id)
}

// IDOf finds the id of a message that was refused, as far as the message is JSON, and reports whether the message is
// a response. id is nil if there is none, if it is repeated, or if it is too long.
func IDOf(raw []byte) (id jsontext.Value, response bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
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
