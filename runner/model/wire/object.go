package wire

import (
	"bytes"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Odd is a member of an answer that has another type than its API says, and that is kept as it came.
type Odd struct {
	Member string // such as "usage.input_tokens" or "content[].input"
	Raw    string // the first value that came, at most maxRaw bytes of it
	Count  uint64 // how often the member was odd
}

// Limits on odd members.
const (
	maxOdd = 16  // members of an answer
	maxRaw = 256 // bytes of a value
)

// object is a JSON object of an answer or a request. Each member is read for itself: a member of another type than
// expected is reported to odd and read as if it were not there, as clients do, and the others keep their values. A
// member that is null counts as absent. The zero object has no members.
type object struct {
	at      string // its name, for odd
	members map[string]jsontext.Value
	odd     func(member string, v jsontext.Value) // may be nil
}

// objectOf reads an object with a name. ok is false if v is something else.
func objectOf(at string, v jsontext.Value, odd func(string, jsontext.Value)) (o object, ok bool) {
	o = object{at: at, odd: odd}
	switch v.Kind() {
	case '{':
		if o.members = membersOf(v); o.members != nil {
			return o, true
		}
	case 'n', 0:
		if len(v) == 0 || v.Kind() == 'n' {
			return o, false
		}
	}
	o.report(at, v)
	return o, false
}

// membersOf returns the members of an object as parts of v, of which it copies nothing; nil if v is no object. Of
// members with the same name, the last counts.
func membersOf(v jsontext.Value) map[string]jsontext.Value {
	in := jsontext.NewDecoder(bytes.NewBuffer(v), options())
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return nil
	}
	all := map[string]jsontext.Value{}
	for in.PeekKind() == '"' {
		t, err := in.ReadToken()
		if err != nil {
			return nil
		}
		name := t.String()
		value, err := part(v, in)
		if err != nil {
			return nil
		}
		all[name] = value
	}
	if _, err := in.ReadToken(); err != nil || len(bytes.TrimLeft(v[in.InputOffset():], " \t\r\n")) > 0 {
		return nil
	}
	return all
}

// itemsOf returns the items of an array as parts of v, and whether v is an array.
func itemsOf(v jsontext.Value) (all []jsontext.Value, ok bool) {
	in := jsontext.NewDecoder(bytes.NewBuffer(v), options())
	if t, err := in.ReadToken(); err != nil || t.Kind() != '[' {
		return nil, false
	}
	for in.PeekKind() != ']' {
		item, err := part(v, in)
		if err != nil {
			return nil, false
		}
		all = append(all, item)
	}
	return all, true
}

// part reads a value of v, at the place that the decoder of v has reached.
func part(v jsontext.Value, in *jsontext.Decoder) (jsontext.Value, error) {
	value, err := in.ReadValue()
	if err != nil {
		return nil, err
	}
	end := in.InputOffset()
	return v[end-int64(len(value)) : end : end], nil
}

func (o object) report(member string, v jsontext.Value) {
	if o.odd != nil {
		o.odd(member, v)
	}
}

// name returns the name of a member.
func (o object) name(member string) string {
	if o.at == "" {
		return member
	}
	return o.at + "." + member
}

// has reports whether a member is there and not null.
func (o object) has(member string) bool {
	v, ok := o.members[member]
	return ok && v.Kind() != 'n'
}

// raw returns a member as it came; nil if it is absent or null.
func (o object) raw(member string) jsontext.Value {
	if !o.has(member) {
		return nil
	}
	return o.members[member]
}

// text returns a text.
func (o object) text(member string) string {
	v := o.raw(member)
	if v == nil {
		return ""
	}
	if v.Kind() != '"' {
		o.report(o.name(member), v)
		return ""
	}
	return text(v)
}

// flag returns a truth value.
func (o object) flag(member string) bool {
	v := o.raw(member)
	if v != nil && v.Kind() != 't' && v.Kind() != 'f' {
		o.report(o.name(member), v)
	}
	return v.Kind() == 't'
}

// index returns a number that is a place in a list, or nil.
func (o object) index(member string) *int64 {
	v := o.raw(member)
	if v == nil {
		return nil
	}
	n := count(v)
	if n == nil {
		o.report(o.name(member), v)
	}
	return n
}

// list returns the items of an array.
func (o object) list(member string) []jsontext.Value {
	v := o.raw(member)
	if v == nil {
		return nil
	}
	items, ok := itemsOf(v)
	if !ok {
		o.report(o.name(member), v)
	}
	return items
}

// object returns a member that is an object. It is empty if the member is absent.
func (o object) object(member string) object {
	inner, _ := objectOf(o.name(member), o.raw(member), o.odd)
	return inner
}

// objects returns the items of an array that are objects.
func (o object) objects(member string) []object {
	var all []object
	for _, v := range o.list(member) {
		if inner, ok := objectOf(o.name(member)+"[]", v, o.odd); ok {
			all = append(all, inner)
		} else if v.Kind() == 'n' {
			o.report(o.name(member)+"[]", v)
		}
	}
	return all
}

// count returns a number of tokens; nil unless v is a whole number of at least 0. To JSON, 9.0 and 9 are the same.
func count(v jsontext.Value) *int64 {
	if v.Kind() != '0' {
		return nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return nil
		}
		n = int64(f)
	}
	if n < 0 {
		return nil
	}
	return &n
}

// tokens returns a number of tokens in a usage; nil if the usage does not say.
func (o object) tokens(member string) *int64 { return o.index(member) }
