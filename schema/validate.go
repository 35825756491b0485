package schema

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

//go:embed json/*.schema.json
var schemaFiles embed.FS

// Errors of [Validate] and [LineChecker.Check], wrapped with the place.
var (
	// ErrSyntax: not one JSON value in UTF-8, or a number beyond reason.
	ErrSyntax = errors.New("not valid JSON")
	// ErrDuplicateKey: an object names a key twice, so that readers may differ
	// about what it says.
	ErrDuplicateKey = errors.New("duplicate key")
	// ErrSchema: valid JSON that its schema refuses.
	ErrSchema = errors.New("does not match its schema")
	// ErrUnknownSchema: no schema of that identifier.
	ErrUnknownSchema = errors.New("unknown schema")
)

// JSONSchema is the JSON Schema (2020-12) of an artifact, by its identifier
// such as [RunV0]. The error is ErrUnknownSchema.
func JSONSchema(id string) ([]byte, error) {
	b, err := schemaFiles.ReadFile("json/" + strings.TrimPrefix(id, "assay.runner.") + ".schema.json")
	if err != nil {
		return nil, fmt.Errorf("%w %.100q", ErrUnknownSchema, id)
	}
	return b, nil
}

// IDs lists the identifiers of all schemas.
func IDs() []string {
	files, _ := schemaFiles.ReadDir("json") // embedded: it is there
	ids := make([]string, len(files))
	for i, f := range files {
		ids[i] = "assay.runner." + strings.TrimSuffix(f.Name(), ".schema.json")
	}
	return ids
}

// Validate checks one JSON document, or a layer's line, against the schema of
// that identifier. It is safe for concurrent use, and each schema is compiled
// on its first use.
func Validate(id string, doc []byte) error {
	s, err := compiled(id)
	if err != nil {
		return err
	}
	_, err = check(s, doc)
	return err
}

func check(s *jsonschema.Resolved, doc []byte) (map[string]any, error) {
	v, err := parse(doc, place{s.Schema(), s.Schema()})
	if err != nil {
		return nil, err
	}
	if err := s.Validate(v); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, oneLine(err.Error()))
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: not an object", ErrSchema)
	}
	return m, nil
}

// Number is a JSON number as package jsonschema tells integers from others: n as
// an integer where it is one, else as a float that is not.
func Number(n string) any {
	if i, err := strconv.ParseInt(n, 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(n, 10, 64); err == nil {
		return u
	}
	f, _ := strconv.ParseFloat(n, 64)
	if _, frac := math.Modf(f); frac == 0 {
		if r, ok := new(big.Rat).SetString(n); ok && !r.IsInt() {
			return math.Copysign(0.5, f) // rounding must not make it whole
		}
	}
	return f
}

// artifactNumber is Number for artifacts, where an integer is plain digits of 64
// bits: what is whole otherwise (1.0, 1e2, -0, 2^64) is no integer to a schema,
// since readers would not take it for one.
func artifactNumber(n string) any {
	if f, _ := strconv.ParseFloat(n, 64); strings.ContainsAny(n, ".eE") && f != 0 && f == math.Trunc(f) {
		return math.Copysign(0.5, f) // without the exact arithmetic of Number
	}
	v := Number(n)
	switch f, ok := v.(float64); {
	case ok && f < 0 && f == math.Trunc(f):
		return -0.5
	case ok && f == math.Trunc(f), n == "-0":
		return 0.5
	}
	return v
}

// oneLine makes a message about hostile input safe to print: one line of printable characters, not too long.
func oneLine(msg string) string {
	const most = 300
	if len(msg) > most {
		msg = strings.ToValidUTF8(msg[:most], "") + "..."
	}
	return OneLine(msg)
}

// parse decodes one JSON value in valid UTF-8 without duplicate keys, its numbers as
// the validator knows them. It refuses numbers whose exact value would take
// unreasonable memory.
func parse(doc []byte, at place) (any, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(doc))
	v, err := parseValue(d, at)
	if err != nil {
		return nil, err
	}
	switch _, err := d.ReadToken(); {
	case err == io.EOF:
		return v, nil
	case err == nil:
		return nil, fmt.Errorf("%w: more than one value", ErrSyntax)
	default:
		return nil, syntaxError(d, err)
	}
}

// place is where a value is in a document, as its schema sees it. A member that the schema says nothing about is only
// checked for its syntax and then ignored, so that it costs no memory.
type place struct {
	root *jsonschema.Schema
	at   *jsonschema.Schema // nil: not known, so that all is kept
}

// ignored reports whether the schema says nothing about the value.
func (p place) ignored() bool { return p.at == nothing }

var nothing = &jsonschema.Schema{}

// member is the place of a member of the object at p.
func (p place) member(name string) place {
	s := p.schema()
	switch {
	case s == nil:
	case s.Properties[name] != nil:
		return place{p.root, s.Properties[name]}
	case silent(s, name):
		return place{p.root, nothing}
	}
	return place{}
}

// items is the place of an array's items.
func (p place) items() place {
	s := p.schema()
	if s == nil || s == nothing {
		return place{p.root, s}
	}
	return place{p.root, s.Items}
}

// schema follows a reference within the schema.
func (p place) schema() *jsonschema.Schema {
	if p.at == nil || p.at.Ref == "" {
		return p.at
	}
	name, ok := strings.CutPrefix(p.at.Ref, "#/$defs/")
	if s := p.root.Defs[name]; ok && s != nil && s.Ref == "" && p.at.Properties == nil {
		return s
	}
	return nil
}

// silent reports whether a schema says nothing about members with a name.
func silent(s *jsonschema.Schema, name string) bool {
	if s.Properties[name] != nil || s.Ref != "" || s.DynamicRef != "" || s.PatternProperties != nil ||
		s.AdditionalProperties != nil || s.PropertyNames != nil || s.UnevaluatedProperties != nil ||
		s.MinProperties != nil || s.MaxProperties != nil || s.Const != nil || s.Enum != nil ||
		s.DependentSchemas != nil || s.DependentRequired != nil || slices.Contains(s.Required, name) {
		return false
	}
	for _, part := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*jsonschema.Schema{s.Not, s.If, s.Then, s.Else}) {
		if part != nil && !silent(part, name) {
			return false
		}
	}
	return true
}

// parseValue decodes the next value. jsontext bounds how deep it is.
func parseValue(d *jsontext.Decoder, at place) (any, error) {
	tok, err := d.ReadToken()
	if err != nil {
		return nil, syntaxError(d, err)
	}
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return tok.Bool(), nil
	case '"':
		if at.ignored() {
			return nil, nil
		}
		return tok.String(), nil
	case '0':
		n := tok.String()
		if err := checkNumber(n); err != nil {
			return nil, err
		}
		return artifactNumber(n), nil
	case '[':
		items := []any{}
		for d.PeekKind() != ']' {
			v, err := parseValue(d, at.items())
			if err != nil {
				return nil, err
			}
			if !at.ignored() {
				items = append(items, v)
			}
		}
		_, err := d.ReadToken()
		return items, err
	}
	var m map[string]any
	if !at.ignored() {
		m = map[string]any{}
	}
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return nil, syntaxError(d, err)
		}
		name, below := "", at
		if !at.ignored() {
			name = key.String()
			below = at.member(name)
		}
		v, err := parseValue(d, below)
		if err != nil {
			return nil, err
		}
		if !below.ignored() {
			m[name] = v
		}
	}
	_, err = d.ReadToken()
	return m, err
}

func syntaxError(d *jsontext.Decoder, err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return fmt.Errorf("%w at byte %d", ErrDuplicateKey, d.InputOffset())
	}
	return fmt.Errorf("%w at byte %d: %v", ErrSyntax, d.InputOffset(), err)
}

// checkSyntax accepts one JSON value in valid UTF-8 without duplicate keys, and
// refuses numbers whose exact value would take unreasonable memory.
func checkSyntax(doc []byte) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(doc))
	for ended := false; ; ended = d.StackDepth() == 0 {
		tok, err := d.ReadToken()
		switch {
		case err == io.EOF && ended:
			return nil
		case err == nil && ended:
			return fmt.Errorf("%w: more than one value", ErrSyntax)
		case err != nil:
			return syntaxError(d, err)
		}
		if tok.Kind() == '0' {
			if err := checkNumber(tok.String()); err != nil {
				return err
			}
		}
	}
}

// checkNumber bounds a number's length and exponent: 1e999999999 is ten bytes
// that an exact decoder turns into a gigabyte.
func checkNumber(n string) error {
	const maxBytes, maxExponent = 300, 300
	if i := strings.IndexAny(n, "eE"); i >= 0 {
		exp, err := strconv.Atoi(n[i+1:])
		if err != nil || exp > maxExponent || exp < -maxExponent {
			return fmt.Errorf("%w: number %.40s has an exponent beyond %d", ErrSyntax, n, maxExponent)
		}
	}
	if len(strings.TrimPrefix(n, "-")) > maxBytes {
		return fmt.Errorf("%w: number %.40s... has more than %d bytes", ErrSyntax, n, maxBytes)
	}
	return nil
}

var schemas struct {
	sync.Mutex
	m map[string]*jsonschema.Resolved
}

// compiled compiles a schema once. Nothing is ever loaded from elsewhere.
func compiled(id string) (*jsonschema.Resolved, error) {
	schemas.Lock()
	defer schemas.Unlock()
	if s := schemas.m[id]; s != nil {
		return s, nil
	}
	src, err := JSONSchema(id)
	if err != nil {
		return nil, err
	}
	var doc jsonschema.Schema
	if err := json.Unmarshal(src, &doc); err != nil {
		return nil, fmt.Errorf("schema %s: %w", id, err)
	}
	s, err := doc.Resolve(&jsonschema.ResolveOptions{BaseURI: "assay:///" + id})
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", id, err)
	}
	if schemas.m == nil {
		schemas.m = map[string]*jsonschema.Resolved{}
	}
	schemas.m[id] = s
	return s, nil
}
