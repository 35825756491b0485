package schema

import (
	"bytes"
	"encoding/json"
)

// Document encodes a whole-file artifact in its canonical form: two-space
// indentation, keys in the order of the type, map keys sorted, no HTML
// escapes, and one final newline. Equal values give equal bytes.
func Document(v any) ([]byte, error) {
	return encode(v, "  ")
}

// Line encodes one layer line: compact, and ending in a newline.
func Line(v any) ([]byte, error) {
	return encode(v, "")
}

func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// MarshalJSON writes the value, or null when it is not valid.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	if !n.Valid {
		return []byte("null"), nil
	}
	return json.Marshal(n.Value)
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
