package jsonrpc

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxID limits a request's id, in bytes, since the receiver stores and repeats it.
const maxID = 256

// text returns the text of a JSON string.
func text(v jsontext.Value) (string, error) {
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err
}

// IDText returns the unescaped text of an id.
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

// IDKey is equal for all spellings of an id. An answer may spell the id of its request differently.
func IDKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return `"` + IDText(id)
	}
	return IDText(id)
}

// OtherKey is the key of the id's other form: the number that a string spells, or the string that spells a number.
func OtherKey(id jsontext.Value) string {
	if id.Kind() == '"' {
		return strings.TrimLeft(IDText(id), `"`)
	}
	return `"` + IDText(id)
}

// IDOf finds the id of a refused message, as far as the message is JSON, and reports whether the message is a
// response. id is nil if it is missing, repeated or too long.
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
