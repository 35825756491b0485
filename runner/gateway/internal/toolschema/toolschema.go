package toolschema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/assay-run/assay-run/schema"
)

// Schema checks a tool's parameters. It is safe for concurrent use.
type Schema struct {
	resolved *jsonschema.Resolved
	work     int // see boundWork
}

// maxCheckWork limits one check: the bytes of the parameters times the schema's work. It takes about a second.
const maxCheckWork = 200_000_000

// Compile compiles a client's JSON Schema (2020-12 or draft-07). An absent, null, true or empty schema accepts
// everything and returns nil. References must point inside the schema; nothing is ever loaded. A schema that could
// make a check take very long is refused.
func Compile(raw jsontext.Value) (*Schema, error) {
	switch raw.Kind() {
	case 0, 'n', 't':
		return nil, nil
	case '{':
	default:
		return nil, errors.New("a JSON Schema must be an object")
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	root := doc.(map[string]any)
	if len(root) == 0 {
		return nil, nil
	}
	work, err := boundWork(root)
	if err != nil {
		return nil, err
	}
	p, err := resolve(raw)
	if err != nil {
		return nil, err
	}
	p.work = work
	return p, nil
}

// resolve compiles a schema, and turns a panic of the library into an error.
func resolve(raw []byte) (p *Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("the schema cannot be compiled: %v", r)
		}
	}()
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{BaseURI: "assay:///tool"})
	if err != nil {
		return nil, err
	}
	return &Schema{resolved: resolved}, nil
}

// Check returns what is wrong with parameters: where, and which keyword refused them, but never their values.
func (p *Schema) Check(raw jsontext.Value) (problem string, ok bool) {
	if p.work*len(raw) > maxCheckWork {
		return "parameters: too large to check against this schema", false
	}
	var v exact
	if err := json.Unmarshal(raw, &v); err != nil {
		return "not valid JSON", false
	}
	defer func() {
		if recover() != nil {
			problem, ok = "the schema cannot be evaluated", false
		}
	}()
	if err := p.resolved.Validate(v.value); err != nil {
		return describe(err.Error()), false
	}
	return "", true
}

// exact is a JSON value whose whole numbers are integers if they fit, as the validator expects.
type exact struct{ value any }

func (e *exact) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	e.value, err = decode(d)
	return err
}

func decode(d *jsontext.Decoder) (any, error) {
	if d.PeekKind() == '0' {
		raw, err := d.ReadValue()
		return schema.Number(string(raw)), err
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '{':
		members := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String() // the next token overwrites it
			if members[key], err = decode(d); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return members, err
	case '[':
		items := []any{}
		for d.PeekKind() != ']' {
			item, err := decode(d)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err := d.ReadToken()
		return items, err
	case '"':
		return t.String(), nil
	case 't', 'f':
		return t.Bool(), nil
	}
	return nil, nil
}

// describe returns the part of a validator's message that does not depend on values: the places in the schema, the
// keyword, and names that the schema requires.
func describe(msg string) string {
	place := "root"
	for {
		rest, ok := strings.CutPrefix(msg, "validating ")
		if !ok {
			break
		}
		at, rest, ok := strings.Cut(rest, ": ")
		if !ok {
			break
		}
		place, msg = at, rest
	}
	keyword, detail, _ := strings.Cut(msg, ":")
	place = short("parameters" + strings.TrimPrefix(place, "root"))
	switch {
	case keyword == "required":
		return short(place + ": required:" + detail)
	case len(keyword) > 40 || strings.ContainsAny(keyword, " \"'"):
		return place + ": does not match the schema"
	}
	return place + ": does not satisfy " + keyword
}

// short shortens a text for a message to a client.
func short(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
