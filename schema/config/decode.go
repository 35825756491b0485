package config

import (
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

	"github.com/assay-run/assay-run/schema"
)

// maxFaults limits how many faults of one file are told.
const maxFaults = 50

// Error is a fault of a file.
type Error struct {
	// Line and Column count from 1; 0 if they are unknown.
	Line, Column int
	// Key is the path to the value, such as checks[2].name; empty for the whole file.
	Key string
	// Problem says what was found and what is allowed.
	Problem string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", e.Line, e.Column)
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
	*v, err = ParseDuration(t.String())
	return err
}

// Decode decodes data into the struct that into points to, by its json tags. See [Document.Decode].
func Decode(data []byte, format Format, into any) error {
	_, err := DecodeDocument(data, format, into)
	return err
}

// DecodeDocument is like [Decode], and returns the document for faults that the caller finds; nil if data is not
// a document.
func DecodeDocument(data []byte, format Format, into any) (*Document, error) {
	doc, err := Parse(data, format)
	if err != nil {
		return nil, err
	}
	return doc, doc.Decode(into)
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

// allowedAt lists the keys of the struct with the unknown key at p, the most similar one first.
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
	return Allowed(p.LastToken(), keysOf(t))
}

// Allowed is the end of a message about a word that is none of names: the name that was probably meant, and all names.
func Allowed(word string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	meant := ""
	if near, distance := schema.Nearest(word, names); distance <= 2 && distance < len(near) {
		meant = fmt.Sprintf("; did you mean %q", near)
	}
	return meant + "; allowed are " + strings.Join(names, ", ")
}

// keysOf returns the keys of a struct, with those of embedded structs.
func keysOf(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name := tagName(f); f.IsExported() && !f.Anonymous && name != "-" {
			names = append(names, name)
		}
	}
	return names
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
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
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
	case reflect.Float64:
		return "a number"
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

func pointer(path []string) (p jsontext.Pointer) {
	for _, token := range path {
		p = p.AppendToken(token)
	}
	return p
}
