package schema

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// encoder appends values as [encoding/json] writes them without HTML escapes, and indents
// as it goes. encoding/json first makes a table of each type that it meets, and indents in
// a second pass: for a process that writes each document once, that takes four times as
// long. What is rare is left to encoding/json. Two fields of one name, as embedding allows,
// and the option "string" are not supported.
type encoder struct {
	dst      []byte
	indented bool
	depth    int
	err      error // the first; what follows is not looked at
}

// appender is a json.Marshaler that an encoder knows.
type appender interface{ appendTo(e *encoder) }

var marshaler, textMarshaler = reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()

func (e *encoder) value(v reflect.Value) {
	if e.err != nil {
		return
	}
	switch kind := v.Kind(); {
	case kind == reflect.Invalid, kind == reflect.Pointer && v.IsNil():
		e.dst = append(e.dst, "null"...)
	case kind == reflect.Pointer:
		e.value(v.Elem())
	case marshals(v):
		if a, ok := v.Interface().(appender); ok {
			a.appendTo(e)
		} else {
			e.other(v)
		}
	case kind == reflect.Struct:
		e.dst = append(e.dst, '{')
		e.end('}', e.fields(v, 0))
	case kind == reflect.Map && v.Type().Key().Kind() == reflect.String && !v.IsNil():
		e.object(v)
	case kind == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8 && !v.IsNil():
		e.dst = append(e.dst, '[')
		for i := range v.Len() {
			e.next(i)
			e.value(v.Index(i))
		}
		e.end(']', v.Len())
	case kind == reflect.String:
		e.string(v.String())
	case kind == reflect.Bool:
		e.dst = strconv.AppendBool(e.dst, v.Bool())
	case v.CanInt():
		e.dst = strconv.AppendInt(e.dst, v.Int(), 10)
	case v.CanUint():
		e.dst = strconv.AppendUint(e.dst, v.Uint(), 10)
	default:
		e.other(v)
	}
}

// marshals tells whether v, or its address where it has one, says itself how it is written.
func marshals(v reflect.Value) bool {
	t := v.Type()
	if t.PkgPath() == "" && t.Kind() != reflect.Struct { // predeclared, or of such
		return t.Kind() == reflect.Interface
	}
	if v.CanAddr() {
		t = reflect.PointerTo(t)
	}
	return t.NumMethod() > 0 && (t.Implements(marshaler) || t.Implements(textMarshaler))
}

// fields appends the fields of v behind n others of the same object, and returns how many
// there are now.
func (e *encoder) fields(v reflect.Value, n int) int {
	t := v.Type()
	for i := range t.NumField() {
		f, fv := t.Field(i), v.Field(i)
		tag := jsonTag(f.Tag)
		name, options, _ := strings.Cut(tag, ",")
		if inner, ok := embedded(f, fv, name); ok {
			if inner.IsValid() {
				n = e.fields(inner, n)
			}
			continue
		}
		if !f.IsExported() || tag == "-" || omitted(options, fv) {
			continue
		}
		if name == "" {
			name = f.Name
		}
		e.next(n)
		e.key(name)
		e.value(fv)
		n++
	}
	return n
}

// jsonTag is t.Get("json"), sooner.
func jsonTag(t reflect.StructTag) string {
	tag, ok := strings.CutPrefix(string(t), `json:"`)
	if !ok {
		return t.Get("json")
	}
	tag, _, _ = strings.Cut(tag, `"`)
	return tag
}

// embedded gives a struct whose fields are those of the struct around it; nothing for a nil
// pointer to one.
func embedded(f reflect.StructField, v reflect.Value, name string) (reflect.Value, bool) {
	if !f.Anonymous || name != "" {
		return v, false
	}
	if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct {
		return v.Elem(), true
	}
	return v, f.Type.Kind() == reflect.Struct
}

func omitted(options string, v reflect.Value) bool {
	switch options {
	case "":
		return false
	case "omitempty":
		switch v.Kind() {
		case reflect.Slice, reflect.Map, reflect.Array:
			return v.Len() == 0
		case reflect.Struct:
			return false
		}
		return v.IsZero()
	}
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		return z.IsZero()
	}
	return v.IsZero()
}

// object appends a map.
func (e *encoder) object(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	e.dst = append(e.dst, '{')
	for i, k := range keys {
		e.next(i)
		e.key(k.String())
		e.value(v.MapIndex(k))
	}
	e.end('}', len(keys))
}

// next begins element i of an object or array.
func (e *encoder) next(i int) {
	if i > 0 {
		e.dst = append(e.dst, ',')
	} else {
		e.depth++
	}
	e.line()
}

// end ends an object or array of n elements.
func (e *encoder) end(bracket byte, n int) {
	if n > 0 {
		e.depth--
		e.line()
	}
	e.dst = append(e.dst, bracket)
}

func (e *encoder) line() {
	if !e.indented {
		return
	}
	e.dst = append(e.dst, '\n')
	for range e.depth {
		e.dst = append(e.dst, "  "...)
	}
}

func (e *encoder) key(s string) {
	e.string(s)
	e.dst = append(e.dst, ':')
	if e.indented {
		e.dst = append(e.dst, ' ')
	}
}

func (e *encoder) string(s string) {
	for i := range len(s) {
		if !plain[s[i]] {
			e.other(reflect.ValueOf(s))
			return
		}
	}
	e.dst = append(e.dst, '"')
	e.dst = append(e.dst, s...)
	e.dst = append(e.dst, '"')
}

// other appends what encoding/json makes of v.
func (e *encoder) other(v reflect.Value) {
	if v.CanAddr() {
		v = v.Addr() // its methods may be the pointer's
	}
	var b bytes.Buffer
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	if e.indented {
		j.SetIndent(strings.Repeat("  ", e.depth), "  ")
	}
	if err := j.Encode(v.Interface()); err != nil && e.err == nil {
		e.err = err
		return
	}
	e.dst = append(e.dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}
