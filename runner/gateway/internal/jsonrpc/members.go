package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

var errNoObject = errors.New("a message must be an object")

// Members finds members of an object, and stores their values where wanted points; a nil pointer ignores the value.
// The values point into object. It refuses a key that differs from a wanted one only in case, because a lax parser
// would accept that key.
func Members(object jsontext.Value, wanted map[string]*jsontext.Value) (ambiguous error) {
	err := eachMember(object, func(name string, v jsontext.Value) {
		if to, known := wanted[name]; known {
			if to != nil {
				*to = v
			}
			return
		}
		for other := range wanted {
			if strings.EqualFold(other, name) {
				ambiguous = fmt.Errorf("the key %q is ambiguous: write keys in lower case", name)
			}
		}
	})
	return errors.Join(err, ambiguous)
}

// ExactKeys checks the keys of an object as Members does, for an object that is decoded elsewhere. Other values have
// no keys.
func ExactKeys(object jsontext.Value, names ...string) error {
	if object.Kind() != '{' {
		return nil
	}
	wanted := map[string]*jsontext.Value{}
	for _, name := range names {
		wanted[name] = nil
	}
	return Members(object, wanted)
}

// Value returns a member's value, or nil if object has no such member or is not an object.
func Value(object jsontext.Value, name string) (v jsontext.Value) {
	if object.Kind() == '{' {
		_ = eachMember(object, func(n string, found jsontext.Value) {
			if n == name {
				v = found
			}
		})
	}
	return v
}

// eachMember calls f for each member of an object, which must be the whole text.
func eachMember(object jsontext.Value, f func(name string, v jsontext.Value)) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(object))
	if t, err := d.ReadToken(); err != nil {
		return noEOF(err)
	} else if t.Kind() != '{' {
		return errNoObject
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return noEOF(err)
		}
		key := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return noEOF(err)
		}
		end := d.InputOffset()
		f(key, object[end-int64(len(v)):end])
	}
	if _, err := d.ReadToken(); err != nil { // end of the object
		return noEOF(err)
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return &jsontext.SyntacticError{ByteOffset: d.InputOffset(), Err: errors.New("text after the message")}
	}
	return nil
}

// noEOF turns the end of an empty text into a syntax error.
func noEOF(err error) error {
	if err == io.EOF {
		return &jsontext.SyntacticError{Err: io.ErrUnexpectedEOF}
	}
	return err
}
