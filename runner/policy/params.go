package policy

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// params are a call's parameters, decoded once for all rules. Objects are map[string]any, lists []any, strings
// string; all other values are literals with their text (number, true, false, null).
type params struct{ root any }

type literal string

// literals keeps numbers as written.
func literals() json.Options {
	return json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
		switch d.PeekKind() {
		case '0', 't', 'f', 'n':
			raw, err := d.ReadValue()
			*v = literal(raw)
			return err
		}
		return errors.ErrUnsupported // use the default
	}))
}

// at returns the values of a parameter: by name, by JSON pointer if key starts with a slash, or all of them for an
// empty key. If the parameters are a list, the name is looked up in each element.
func (p *params) at(key string) []any {
	switch {
	case p.root == nil:
		return nil
	case key == "":
		return []any{p.root}
	case strings.HasPrefix(key, "/"):
		if v, ok := p.pointed(key); ok {
			return []any{v}
		}
		return nil
	}
	list, isList := p.root.([]any)
	if !isList {
		list = []any{p.root}
	}
	var found []any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			if v, ok := m[key]; ok {
				found = append(found, v)
			}
		}
	}
	return found
}

// pointed returns the value at a JSON pointer.
func (p *params) pointed(pointer string) (any, bool) {
	v := p.root
	for token := range jsontext.Pointer(pointer).Tokens() {
		switch w := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = w[token]; !ok {
				return nil, false
			}
		case []any:
			i := index(token)
			if i < 0 || i >= len(w) {
				return nil, false
			}
			v = w[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// index parses an array index of a JSON pointer; -1: not an index.
func index(token string) int {
	if token == "" || len(token) > 9 {
		return -1
	}
	n := 0
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// scalar returns a parameter that is a single string, number or boolean.
func (p *params) scalar(key string) (v any, ok bool) {
	found := p.at(key)
	if len(found) != 1 {
		return nil, false
	}
	switch v := found[0].(type) {
	case string:
		return v, true
	case literal:
		return v, v != "null"
	}
	return nil, false
}

// anyText reports whether match is true for any text in a parameter: strings, numbers, booleans and keys, at any
// depth.
func (p *params) anyText(key string, match func(text any) bool) bool {
	for _, v := range p.at(key) {
		if anyText(v, match) {
			return true
		}
	}
	return false
}

func anyText(v any, match func(any) bool) bool {
	switch v := v.(type) {
	case string, literal:
		return match(v)
	case []any:
		for _, e := range v {
			if anyText(e, match) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if match(k) || anyText(e, match) {
				return true
			}
		}
	}
	return false
}

// forms returns the ways to read a text or a number: as written, and a number also in its usual form, 2.2e1 as 22.
func forms(text any) []string {
	switch t := text.(type) {
	case string:
		return []string{t}
	case literal:
		if strings.ContainsAny(string(t), ".eE") {
			if f, err := strconv.ParseFloat(string(t), 64); err == nil {
				return []string{string(t), strconv.FormatFloat(f, 'f', -1, 64)}
			}
		}
		return []string{string(t)}
	}
	return nil
}
