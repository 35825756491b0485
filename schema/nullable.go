package schema

import "github.com/go-json-experiment/json"

// Nullable is a JSON value that is written as null when not Valid. Behind a
// pointer with omitempty it tells "null" from "absent".
type Nullable[T any] struct {
	Value T
	Valid bool
}

// Some is a Nullable that holds v.
func Some[T any](v T) *Nullable[T] { return &Nullable[T]{Value: v, Valid: true} }

// None is a Nullable that is written as null.
func None[T any]() *Nullable[T] { return &Nullable[T]{} }

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
