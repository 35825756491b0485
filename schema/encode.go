package schema

import (
	"encoding/json"
	"io"
	"reflect"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Document encodes a whole-file artifact in its canonical form: two-space
// indentation, keys in the order of the type, map keys sorted, no HTML
// escapes, and one final newline. Equal values give equal bytes.
func Document(v any) ([]byte, error) {
	room := 3 << 10
	if _, ok := v.(*ObservationHealth); ok { // the longest, which has some 20 KB in a run of one program
		room = 24 << 10
	}
	return encode(v, true, room)
}

// Line encodes one layer line: compact, and ending in a newline.
func Line(v any) ([]byte, error) {
	return encode(v, false, 512)
}

// PrintDocument writes v to w as [Document] encodes it, with what drives a terminal
// escaped as [AppendForTerminal] does. It writes while it encodes: encoding/json would
// hold a large document twice.
func PrintDocument(w io.Writer, v any) error {
	out := forTerminal{w}
	if err := jsonv2.MarshalWrite(out, v, jsonv1.DefaultOptionsV1(), jsontext.WithIndent("  "), jsontext.EscapeForHTML(false)); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func encode(v any, indented bool, room int) ([]byte, error) {
	e := encoder{dst: make([]byte, 0, room), indented: indented}
	e.value(reflect.ValueOf(v))
	if e.err != nil {
		return nil, e.err
	}
	return append(e.dst, '\n'), nil
}

// MarshalJSON writes the value, or null when it is not valid.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	if !n.Valid {
		return []byte("null"), nil
	}
	return json.Marshal(n.Value)
}

func (n Nullable[T]) appendTo(e *encoder) {
	if !n.Valid {
		e.dst = append(e.dst, "null"...)
		return
	}
	e.value(reflect.ValueOf(n.Value))
}

// UnmarshalJSON reads a value or null.
func (n *Nullable[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Nullable[T]{}
		return nil
	}
	n.Valid = true
	return json.Unmarshal(b, &n.Value)
}
