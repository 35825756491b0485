package policyfile

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Values is one value or a list of them, each a string, number or boolean.
type Values []string

// UnmarshalJSON accepts a scalar or a list of scalars.
func (v *Values) UnmarshalJSON(b []byte) error {
	raw := jsontext.Value(b)
	switch raw.Kind() {
	case 'n':
		*v = nil
		return nil
	case '[':
		var list []jsontext.Value
		if err := json.Unmarshal(b, &list); err != nil {
			return err
		}
		*v = make(Values, 0, len(list))
		for _, item := range list {
			s, ok := scalar(item)
			if !ok {
				return errors.New("a list of values may hold only strings, numbers and booleans")
			}
			*v = append(*v, s)
		}
		return nil
	}
	s, ok := scalar(raw)
	if !ok {
		return errors.New("must be a string, a number, a boolean, or a list of them")
	}
	*v = Values{s}
	return nil
}

// scalar returns the text of a string, number or boolean.
func scalar(raw jsontext.Value) (string, bool) {
	switch raw.Kind() {
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err == nil
	case '0', 't', 'f':
		return strings.TrimSpace(string(raw)), true
	}
	return "", false
}
