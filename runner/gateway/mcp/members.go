package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// member is a member to find in an object, and where to put its value. nil ignores the
// value.
type member struct {
	name string
	to   *jsontext.Value
}

// members finds members of an object. The values point into object. It refuses a key that
// differs from a member's name only in case, because a lax parser would take it for that
// member. The object is valid JSON without repeated keys; see split.
func members(object jsontext.Value, wanted ...member) (ambiguous error) {
	err := eachMember(object, func(name string, v jsontext.Value) {
		for _, m := range wanted {
			switch {
			case m.name == name && m.to != nil:
				*m.to = v
			case m.name != name && strings.EqualFold(m.name, name) && !slices.ContainsFunc(wanted, func(m member) bool { return m.name == name }):
				ambiguous = fmt.Errorf("the key %q is ambiguous: write keys in lower case", name)
			}
		}
	})
	return errors.Join(err, ambiguous)
}

// exactKeys checks the keys as members does, for an object that something else decodes.
// What is not an object has no keys.
func exactKeys(object jsontext.Value, names ...string) error {
	if object.Kind() != '{' {
		return nil
	}
	wanted := make([]member, len(names))
	for i, name := range names {
		wanted[i].name = name
	}
	return members(object, wanted...)
}

// value returns a member's value, or nil if there is no such member or no object.
func value(object jsontext.Value, name string) (v jsontext.Value) {
	if object.Kind() == '{' {
		_ = eachMember(object, func(n string, found jsontext.Value) {
			if n == name {
				v = found
			}
		})
	}
	return v
}

// eachMember calls f with each member of a valid object.
func eachMember(object jsontext.Value, f func(name string, v jsontext.Value)) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		end := d.InputOffset()
		f(key, object[end-int64(len(v)):end])
	}
	return nil
}
