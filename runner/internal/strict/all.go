package strict

import (
	"errors"
	"reflect"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxFaults limits how many faults DecodeAll finds.
const maxFaults = 50

// Lines returns the lines of the values in a file.
type Lines struct{ doc *document }

// Of returns the line of the value whose keys and indexes are path, or of the nearest value that contains it; 0:
// unknown.
func (l Lines) Of(path ...string) int {
	if l.doc == nil {
		return 0
	}
	var p jsontext.Pointer
	for _, token := range path {
		p = p.AppendToken(token)
	}
	return l.doc.lineOf(p)
}

// DecodeAll reads YAML like Decode, but continues after a value that does not fit the struct: into gets the rest, and
// the error joins all faults, each an *[Error].
func DecodeAll(data []byte, into any) (Lines, error) {
	doc, err := translate(data)
	if err != nil {
		return Lines{}, err
	}
	lineOf := func(p jsontext.Pointer, _ int64) int { return doc.lineOf(p) }
	zero := reflect.ValueOf(into).Elem()
	var faults []*Error
	for text := doc.json; ; {
		zero.SetZero()
		err := json.Unmarshal(text, into, json.RejectUnknownMembers(true), json.WithUnmarshalers(duration()))
		if err == nil {
			break
		}
		faults = append(faults, explain(err, reflect.TypeOf(into), lineOf))
		var at *json.SemanticError
		if !errors.As(err, &at) || at.JSONPointer == "" || len(faults) == maxFaults {
			break
		}
		if text, err = without(text, at.JSONPointer); err != nil {
			break
		}
	}
	slices.SortStableFunc(faults, func(a, b *Error) int { return a.Line - b.Line })
	var all []error
	for _, fault := range faults {
		all = append(all, fault)
	}
	return Lines{doc}, errors.Join(all...)
}

// without returns text without the member at p; an element of a list becomes null, so that the others keep their
// indexes.
func without(text []byte, p jsontext.Pointer) ([]byte, error) {
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	parent := root
	for token := range p.Parent().Tokens() {
		switch v := parent.(type) {
		case map[string]any:
			parent = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(v) {
				return nil, errors.New("no such element")
			}
			parent = v[i]
		}
	}
	switch v := parent.(type) {
	case map[string]any:
		delete(v, p.LastToken())
	case []any:
		i, err := strconv.Atoi(p.LastToken())
		if err != nil || i >= len(v) || v[i] == nil {
			return nil, errors.New("no such element")
		}
		v[i] = nil
	}
	return json.Marshal(root, json.Deterministic(true))
}
