package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// token is what a bearer token looks like (b64token in RFC 6750), unless it begins like a path.
var token = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~+/=-]*$`) })

// leaf is a string, a number, a boolean or null in a document.
type leaf struct {
	at    string // a JSON pointer
	value jsontext.Value
	end   int // of the value in the document
}

// leaves lists those of a document in order.
func leaves(doc []byte) (list []leaf, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	for {
		kind, names := d.StackIndex(d.StackDepth())
		switch name := kind == '{' && names%2 == 0; d.PeekKind() {
		case '"', '0', 't', 'f', 'n':
			v, err := d.ReadValue()
			if err != nil {
				return nil, err
			}
			if !name {
				list = append(list, leaf{string(d.StackPointer()), v.Clone(), int(d.InputOffset())})
			}
		default:
			if _, err := d.ReadToken(); errors.Is(err, io.EOF) {
				return list, nil
			} else if err != nil {
				return nil, err
			}
		}
	}
}

// renewLogin returns the document before with what renewing a login changes in after: tokens and times. Agents take
// other values for programs that they start, and for hosts that they trust. lost is empty, or says what else changed.
func renewLogin(before, after []byte) (renewed []byte, lost string, err error) {
	was, err := leaves(before)
	if err != nil {
		return nil, "", fmt.Errorf("what was there is not JSON: %w", err)
	}
	now, err := leaves(after)
	if err != nil {
		return nil, "", fmt.Errorf("what the command wrote is not JSON: %w", err)
	}
	changed := map[string]jsontext.Value{}
	for _, l := range now {
		changed[l.at] = l.value
	}
	from := 0
	for _, l := range was {
		v, ok := changed[l.at]
		delete(changed, l.at)
		switch {
		case ok && bytes.Equal(v, l.value):
		case ok && renews(l.value, v):
			renewed = append(append(renewed, before[from:l.end-len(l.value)]...), v...)
			from = l.end
		default:
			lost = l.at
		}
	}
	for at := range changed {
		lost = max(lost, at)
	}
	if lost != "" {
		lost = fmt.Sprintf("%.80q is not a token or a time that was there before", lost)
	}
	return append(renewed, before[from:]...), lost, nil
}

// renews reports whether renewing a login may replace a value by another.
func renews(old, value jsontext.Value) bool {
	if old.Kind() != value.Kind() || value.Kind() != '"' {
		return old.Kind() == '0' && value.Kind() == '0'
	}
	text, err := jsontext.AppendUnquote(nil, value)
	_, isTime := time.Parse(time.RFC3339, string(text))
	return err == nil && (isTime == nil || token().Match(text))
}
