package policy

import (
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// params is a call's parameters, taken apart once for all rules: objects are
// map[string]any, lists []any, strings string, and every other value the text
// it was written as (number, true, false, null) as a literal.
type params struct{ root any }

type literal string

func (c *Call) params() *params {
	if c.parsed == nil {
		c.parsed = &params{}
		if len(c.Params) > 0 {
			var root any
			if err := json.Unmarshal(c.Params, &root, literals()); err != nil {
				// Callers pass valid JSON. A rule that cannot look denies.
				panic("policy: parameters are not valid JSON")
			}
			c.parsed.root = root
		}
	}
	return c.parsed
}

// literals keeps numbers as they were written.
func literals() json.Options {
	return json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
		switch d.PeekKind() {
		case '0', 't', 'f', 'n':
			raw, err := d.ReadValue()
			*v = literal(raw)
			return err
		}
		return errors.ErrUnsupported // the default
	}))
}

// at is the value of a parameter: by name, by JSON pointer when key starts
// with a slash, or all of them for an empty key.
func (p *params) at(key string) (any, bool) {
	if key == "" {
		return p.root, p.root != nil
	}
	if !strings.HasPrefix(key, "/") {
		m, _ := p.root.(map[string]any)
		v, ok := m[key]
		return v, ok
	}
	v := p.root
	for token := range jsontext.Pointer(key).Tokens() {
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

// index reads an array index of a JSON pointer, -1 when it is none.
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

// scalar is the text of a parameter that is a string, number or boolean.
func (p *params) scalar(key string) (string, bool) {
	v, ok := p.at(key)
	if !ok {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case literal:
		return string(v), v != "null"
	}
	return "", false
}

// usual is how a number is usually written, as far as tools tell numbers apart.
func usual(number string) string {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return number
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// anyText tells whether match holds for any text in a parameter: strings,
// numbers, booleans and keys, however deep. A number counts as it is written
// and as it is usually: 2.2e1 is 22 to a tool.
func (p *params) anyText(key string, match func(string) bool) bool {
	v, ok := p.at(key)
	return ok && anyText(v, match)
}

func anyText(v any, match func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return match(v)
	case literal:
		return match(string(v)) || strings.ContainsAny(string(v), ".eE") && match(usual(string(v)))
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

// fold makes texts the same that differ in case alone, whatever the script: Σ, σ
// and ς, or s and ſ.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		return least
	}, s)
}
