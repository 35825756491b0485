// Package strict decodes the small JSON and YAML files that people and models write for assay-run: every key must be
// known and unique, every value must have its field's type, and an error names the line and the key.
//
// YAML is restricted to what JSON can express: one document, string keys, no anchors, aliases, merge keys or tags, so
// a small file cannot grow into a large value. It is translated to JSON and decoded there, so both formats follow the
// same rules. Callers limit the size of data; a hostile file within that limit gives an error, never a panic and
// never much more work than its size.
package strict

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Format is the format of a file.
type Format int

const (
	JSON Format = iota
	YAML
)

// Error is a fault of a file.
type Error struct {
	// Line counts from 1; 0 if the line is unknown.
	Line int
	// Key is the path to the value, such as checks[2].name; empty for the whole file.
	Key string
	// Problem says what was found and what is allowed.
	Problem string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, "%s: ", e.Key)
	}
	return b.String() + e.Problem
}

// duration reads a time.Duration in the form 90s or 1m30s.
var duration = sync.OnceValue(func() *json.Unmarshalers { return json.UnmarshalFromFunc(readDuration) })

func readDuration(d *jsontext.Decoder, v *time.Duration) error {
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() == '"' {
		if *v, err = time.ParseDuration(t.String()); err == nil {
			return nil
		}
	}
	return timeError(t.String())
}

// timeError is a value that is not a duration.
type timeError string

func (e timeError) Error() string {
	return fmt.Sprintf("%q is not a time such as 90s or 10m", string(e))
}

// Decode decodes data into the struct that into points to, by its json tags. Every error is an *[Error].
func Decode(data []byte, format Format, into any) error {
	lineOf := func(_ jsontext.Pointer, offset int64) int { return lineAt(data, offset) }
	text := data
	if format == YAML {
		doc, err := translate(data)
		if err != nil {
			return err
		}
		text = doc.json
		lineOf = func(p jsontext.Pointer, _ int64) int { return doc.lineOf(p) }
	}
	err := json.Unmarshal(text, into, json.RejectUnknownMembers(true), json.WithUnmarshalers(duration()))
	if err == nil {
		return nil
	}
	return explain(err, reflect.TypeOf(into), lineOf)
}

func explain(err error, into reflect.Type, lineOf func(jsontext.Pointer, int64) int) *Error {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic):
		e := &Error{Line: lineOf(semantic.JSONPointer, semantic.ByteOffset), Key: keyPath(semantic.JSONPointer)}
		switch {
		case errors.Is(semantic.Err, json.ErrUnknownName):
			e.Problem = "unknown key" + allowedAt(into, semantic.JSONPointer)
		case errors.As(semantic.Err, new(timeError)):
			e.Problem = semantic.Err.Error()
		case semantic.Err != nil && ownWords(reflect.PointerTo(orAny(semantic.GoType))):
			e.Problem = semantic.Err.Error() // the type's own message
		case semantic.GoType != nil && kindName(semantic.GoType) != "":
			e.Problem = "found a " + kindOf(semantic.JSONKind) + ", want " + kindName(semantic.GoType)
		default:
			e.Problem = err.Error()
		}
		return e
	case errors.As(err, &syntactic):
		e := &Error{Line: lineOf(syntactic.JSONPointer, syntactic.ByteOffset), Key: keyPath(syntactic.JSONPointer)}
		if errors.Is(syntactic.Err, jsontext.ErrDuplicateName) {
			e.Problem = "key given twice"
		} else {
			e.Problem = "not valid JSON: " + syntactic.Err.Error()
		}
		return e
	}
	return &Error{Problem: "not valid JSON: " + err.Error()}
}

// ownWords reports whether a type decodes its values itself, and so has the best error messages.
func ownWords(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) ||
		t.Implements(reflect.TypeFor[json.Unmarshaler]())
}

func orAny(t reflect.Type) reflect.Type {
	if t == nil {
		return reflect.TypeFor[any]()
	}
	return t
}

// allowedAt lists the keys of the struct with the unknown key at p.
func allowedAt(t reflect.Type, p jsontext.Pointer) string {
	for token := range p.Parent().Tokens() {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Slice:
			t = t.Elem()
		case reflect.Struct:
			f, ok := fieldByTag(t, token)
			if !ok {
				return ""
			}
			t = f.Type
		default:
			return ""
		}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return ""
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() && !f.Anonymous {
			names = append(names, tagName(f))
		}
	}
	return "; allowed are " + strings.Join(names, ", ")
}

func fieldByTag(t reflect.Type, name string) (reflect.StructField, bool) {
	return t.FieldByNameFunc(func(n string) bool {
		f, _ := t.FieldByName(n)
		return tagName(f) == name
	})
}

func tagName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func kindOf(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "list"
	case '"':
		return "string"
	case '0':
		return "number"
	case 't', 'f':
		return "boolean"
	}
	return "null"
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.String:
		return "a string (quote it)"

	case reflect.Bool:
		return "true or false"
	case reflect.Int64, reflect.Int:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return ""
}

// keyPath converts /checks/2/name to checks[2].name.
func keyPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if len(token) > 80 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			token = strconv.QuoteToASCII(token[:min(len(token), 80)])
		}
		b.WriteString(token)
	}
	return b.String()
}

func lineAt(data []byte, offset int64) int {
	offset = min(max(offset, 0), int64(len(data)))
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}
