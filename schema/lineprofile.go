package schema

import (
	"bytes"
	"regexp"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

const (
	maxShapes = 1 << 12 // remembered shapes of a schema
	maxShape  = 1 << 10 // bytes of one
	maxKeys   = 128     // properties of a schema: the bits of the duplicate check
)

// profile is what the fast path knows of one schema.
type profile struct {
	id     string
	schema *jsonschema.Resolved
	keys   map[string]int // index of each known property
	rules  []rule         // by index
	order  []int          // the keys of the line before, by position
	names  []string
	shapes map[string]struct{}
	last   []byte // the shape of the line before
}

func newProfile(id string) (*profile, error) {
	s, err := compiled(id)
	if err != nil {
		return nil, err
	}
	p := &profile{id: id, schema: s, keys: map[string]int{}, shapes: map[string]struct{}{}}
	src, err := JSONSchema(id)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := json.Unmarshal(src, &doc); err != nil {
		return nil, err
	}
	if !p.learn(doc) || len(p.names) > maxKeys {
		p.keys = nil // no fast path
	}
	return p, nil
}

// learn walks all subschemas that apply to the line itself and notes which
// properties they constrain beyond their class. It reports false for a schema
// that uses a keyword this reasoning does not cover.
func (p *profile) learn(s map[string]any) bool {
	for key, v := range s {
		switch key {
		case "$schema", "$id", "$comment", "title", "description", "examples", "default", "type",
			"required", "dependentRequired", "minProperties", "maxProperties":
			// Functions of the object's keys, which are part of its shape.
		case "additionalProperties", "unevaluatedProperties":
			if _, ok := v.(bool); !ok {
				return false
			}
		case "properties":
			for name, sub := range v.(map[string]any) {
				p.constrain(name, sub)
			}
		case "allOf", "anyOf", "oneOf":
			for _, sub := range v.([]any) {
				if m, ok := sub.(map[string]any); ok && !p.learn(m) {
					return false
				}
			}
		case "if", "then", "else", "not":
			if m, ok := v.(map[string]any); ok && !p.learn(m) {
				return false
			}
		case "$defs":
			// Reached by $ref only: inside a property it makes the property's
			// whole value part of the shape, elsewhere it ends up below.
		default:
			return false
		}
	}
	return true
}

// rule is what the schema looks at in a property.
type rule struct {
	any      bool             // at nothing
	free     bool             // at its class, and whether it matches the patterns
	patterns []*regexp.Regexp // of a string
	last     []byte           // the text before, and whether each of them matched
	matched  []byte
}

// appendShape appends what the schema can tell a value by.
func (r *rule) appendShape(sig []byte, class byte, raw []byte) []byte {
	if r.any {
		return append(sig, classAny)
	}
	sig = append(sig, class)
	plain := bytes.IndexByte(raw, '\\') < 0
	if !r.free || class == classOther || class == classString && len(r.patterns) > 0 && !plain {
		return append(append(sig, raw...), 0) // no value holds a NUL
	}
	if class == classString || class == classNoText {
		sig = append(sig, r.matches(raw[1:len(raw)-1])...)
	}
	return sig
}

// matches tells which patterns match a text. Texts repeat.
func (r *rule) matches(text []byte) []byte {
	if len(r.patterns) == 0 || len(r.matched) > 0 && bytes.Equal(text, r.last) {
		return r.matched
	}
	r.last, r.matched = append(r.last[:0], text...), r.matched[:0]
	for _, p := range r.patterns {
		m := byte('0')
		if p.Match(text) {
			m = '1'
		}
		r.matched = append(r.matched, m)
	}
	return r.matched
}

func (p *profile) constrain(name string, s any) {
	i, ok := p.keys[name]
	if !ok {
		i = len(p.names)
		p.keys[name] = i
		p.names = append(p.names, name)
		p.rules = append(p.rules, rule{any: true, free: true})
	}
	m, _ := s.(map[string]any)
	r := &p.rules[i]
	r.any = r.any && m != nil && len(m) == 0
	r.free = r.free && isFree(s)
	if pattern, ok := m["pattern"].(string); ok && r.free {
		re, err := regexp.Compile(pattern)
		r.patterns = append(r.patterns, re)
		r.free = err == nil
	}
}

// isFree tells that a property's schema looks at no more than the class that
// scanValue gives, and a pattern: its type, its sign, whether it is 0 or empty,
// whether all its items are strings.
func isFree(s any) bool {
	m, ok := s.(map[string]any)
	if !ok {
		return true // true and false
	}
	for key, v := range m {
		switch key {
		case "pattern":
			if _, ok := v.(string); !ok {
				return false
			}
		case "type", "title", "description", "$comment", "examples", "default":
		case "minimum", "minLength", "minItems":
			if n, ok := v.(float64); !ok || n != 0 && n != 1 {
				return false
			}
		case "items":
			items, ok := v.(map[string]any)
			if !ok || len(items) != 1 || items["type"] != "string" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func (p *profile) accepted(sig []byte) bool {
	if bytes.Equal(sig, p.last) {
		return len(sig) > 0
	}
	if _, ok := p.shapes[string(sig)]; !ok {
		return false
	}
	p.last = append(p.last[:0], sig...)
	return true
}

func (p *profile) remember(sig []byte) {
	if len(sig) > maxShape {
		return
	}
	if len(p.shapes) >= maxShapes {
		clear(p.shapes) // the common ones are soon back
	}
	p.shapes[string(sig)] = struct{}{}
}

// index finds a key, most often where the line before had it.
func (p *profile) index(key []byte, pos int) int {
	if pos < len(p.order) && string(key) == p.names[p.order[pos]] {
		return p.order[pos]
	}
	i, ok := p.keys[string(key)]
	if !ok {
		return -1
	}
	p.order = append(p.order[:min(pos, len(p.order))], i)
	return i
}
