package schema

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// lineReader reads the values of a line. Its errors say what the schema refuses. For a line that is not JSON, use the
// error of [checkSyntax] instead.
type lineReader struct{ *jsontext.Decoder }

// object reads an object, calls value at the value of each key, and returns the keys.
func (d lineReader) object(value func(key string) error) (keys, error) {
	if d.PeekKind() != '{' {
		return nil, errors.New("is not an object")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	have := make(keys, 0, 16)
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := key.String()
		if err := value(name); err != nil {
			return nil, fmt.Errorf("%.100s: %w", name, err)
		}
		have = append(have, name)
	}
	_, err := d.ReadToken()
	return have, err
}

// keys are the keys of an object.
type keys []string

// need returns an error if one of the names is missing.
func (k keys) need(names ...string) error {
	for _, name := range names {
		if !slices.Contains(k, name) {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}

// list reads an array of at most most items, each by item. The result is not nil.
func list[T any](d lineReader, most int, item func() (T, error)) ([]T, error) {
	if d.PeekKind() != '[' {
		return nil, errors.New("is not an array")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	items := []T{}
	for d.PeekKind() != ']' {
		v, err := item()
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", len(items), err)
		}
		if len(items) == most {
			return nil, fmt.Errorf("has more than %d items", most)
		}
		items = append(items, v)
	}
	_, err := d.ReadToken()
	return items, err
}

// unbounded is for arrays that may have any number of items.
const unbounded = -1

func (d lineReader) texts() ([]string, error) { return list(d, unbounded, d.text) }

// records reads an object whose values are objects of one kind.
func records[T any](d lineReader, record func() (T, error)) (map[string]T, error) {
	all := map[string]T{}
	_, err := d.object(func(key string) (err error) {
		all[key], err = record()
		return err
	})
	return all, err
}

// null reads a null, and reports whether there was one.
func (d lineReader) null() bool {
	if d.PeekKind() != 'n' {
		return false
	}
	_, err := d.ReadToken()
	return err == nil
}

func (d lineReader) text() (string, error) {
	if d.PeekKind() != '"' {
		return "", errors.New("is not a string")
	}
	t, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

func (d lineReader) textOrNull() (string, error) {
	if d.null() {
		return "", nil
	}
	return d.text()
}

// notEmpty reads a text that is not empty.
func (d lineReader) notEmpty() (string, error) {
	s, err := d.text()
	if err == nil && s == "" {
		err = errors.New("is empty")
	}
	return s, err
}

// oneOf reads one of some texts.
func (d lineReader) oneOf(texts ...string) (string, error) {
	s, err := d.text()
	if err == nil && !slices.Contains(texts, s) {
		err = fmt.Errorf("is %.100q, want one of %q", s, texts)
	}
	return s, err
}

// matching reads a text that matches a pattern.
func (d lineReader) matching(pattern func() *regexp.Regexp) (string, error) {
	s, err := d.text()
	if err == nil && !pattern().MatchString(s) {
		err = fmt.Errorf("is %.100q, which does not match %s", s, pattern())
	}
	return s, err
}

// valid reads a text for which is returns true; want says which those are.
func (d lineReader) valid(is func(string) bool, want string) (string, error) {
	s, err := d.text()
	if err == nil && !is(s) {
		err = fmt.Errorf("is %.100q, want %s", s, want)
	}
	return s, err
}

func (d lineReader) runID() (string, error) {
	is := func(s string) bool { return isRunID(s) && len(s) <= 128 }
	return d.valid(is, "1 to 128 ASCII letters, digits, '_' or '-'")
}

func (d lineReader) containerID() (string, error) { return d.valid(isContainerID, "64 hex digits") }
func (d lineReader) digest() (string, error)      { return d.valid(isDigest, "sha256: and 64 hex digits") }

// matcher returns a pattern of the schemas, compiled when a line needs it: most processes decode none.
func matcher(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

func (d lineReader) boolean() (bool, error) {
	if k := d.PeekKind(); k != 't' && k != 'f' {
		return false, errors.New("is not true or false")
	}
	t, err := d.ReadToken()
	return err == nil && t.Bool(), err
}

// number reads the text of a number.
func (d lineReader) number() (string, error) {
	if d.PeekKind() != '0' {
		return "", errors.New("is not a number")
	}
	t, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// integer reads an integer. One above the largest int64 becomes the largest int64.
func (d lineReader) integer() (int64, error) {
	n, err := d.number()
	if err != nil {
		return 0, err
	}
	v, err := signed([]byte(n))
	if _, fits := natural([]byte(n)); fits && errors.Is(err, errRange) {
		return math.MaxInt64, nil
	}
	return v, err
}

// int reads an integer as an int.
func (d lineReader) int() (int, error) {
	v, err := d.integer()
	return int(v), err
}

// size reads an int that is not below 0.
func (d lineReader) size() (int, error) {
	v, err := d.natural()
	return int(v), err
}

// natural reads an integer that is not below 0.
func (d lineReader) natural() (int64, error) {
	v, err := d.integer()
	if err == nil && v < 0 {
		err = errors.New("is below 0")
	}
	return v, err
}

// count reads an integer of 64 bits that is not below 0.
func (d lineReader) count() (uint64, error) {
	n, err := d.number()
	if err != nil {
		return 0, err
	}
	v, ok := natural([]byte(n))
	if !ok {
		return 0, fmt.Errorf("%.40s is not a whole number from 0 in plain digits of 64 bits", n)
	}
	return v, nil
}

// raw reads any value. The result is a part of the line.
func (d lineReader) raw() (jsontext.Value, error) {
	v, err := d.ReadValue()
	if err == nil {
		switch v.Kind() {
		case '0':
			err = checkNumber(string(v))
		case '{', '[':
			err = checkSyntax(v) // the numbers in it
		}
	}
	return v, err
}

// skip reads a value of a key that has no field. Unlike raw it reads it once, and needs no second decoder.
func (d lineReader) skip() error {
	for depth := d.StackDepth(); ; {
		t, err := d.ReadToken()
		if err == nil && t.Kind() == '0' {
			err = checkNumber(t.String())
		}
		if err != nil || d.StackDepth() == depth {
			return err
		}
	}
}

// pointer turns the result of a read into the value of an optional field.
func pointer[T any](v T, err error) (*T, error) { return &v, err }

// nullable reads a value or null.
func nullable[T any](d lineReader, value func() (T, error)) (*Nullable[T], error) {
	if d.null() {
		return None[T](), nil
	}
	v, err := value()
	return Some(v), err
}

// duration reads any number that is not below 0.
func (d lineReader) duration() (float64, error) {
	n, err := d.number()
	if err == nil {
		err = checkNumber(n)
	}
	if err != nil {
		return 0, err
	}
	v, _ := strconv.ParseFloat(n, 64) // infinite if it is too large for a float64
	if v < 0 {
		return 0, errors.New("is below 0")
	}
	return v, nil
}
