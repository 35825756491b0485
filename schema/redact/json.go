package redact

import "bytes"

// jsonText follows JSON text: what is inside of its strings. It only goes forward.
type jsonText struct {
	b     []byte
	at    int // where a character begins
	in    bool
	begin int // of the string that at is in
}

// whole is the string that at is in, up to the length of the longest formal one.
func (t *jsonText) whole() []byte {
	b := t.b[t.begin:min(len(t.b), t.begin+maxFormal+1)]
	if i := bytes.IndexByte(b, '"'); i >= 0 {
		b = b[:i]
	}
	return b
}

// clamp is the end of what stands between start and end, cut where the string ends
// that start is in; start itself where it is in none, or inside of an escape.
func (t *jsonText) clamp(start, end int) int {
	for t.at < start {
		if t.in {
			t.step()
		} else if i := bytes.IndexByte(t.b[t.at:start], '"'); i >= 0 {
			t.at, t.in = t.at+i+1, true
			t.begin = t.at
		} else {
			t.at = start
		}
	}
	if !t.in || t.at != start {
		return start
	}
	ahead := *t
	for ahead.at < end {
		before := ahead.at
		if ahead.step(); !ahead.in || ahead.at > end {
			return before
		}
	}
	return end
}

// number is where a number of JSON begins, with its sign, that stands between start and
// end; false where something else does.
func (t *jsonText) number(start, end int) (int, bool) {
	part := func(i int) bool {
		return i >= 0 && i < len(t.b) && bytes.IndexByte([]byte("0123456789+-.eE"), t.b[i]) >= 0
	}
	for i := start; i < end; i++ {
		if !part(i) {
			return start, false
		}
	}
	if start > 0 && t.b[start-1] == '-' {
		start--
	}
	if part(start-1) || part(end) {
		return start, false
	}
	t.clamp(start, end)
	return start, !t.in
}

// key is the key of the member whose value is the string that at is in; empty where
// it is something else's.
func (t *jsonText) key() string {
	b := bytes.TrimRight(t.b[max(0, t.begin-maxFormal):max(0, t.begin-1)], " ")
	if len(b) < 2 || b[len(b)-1] != ':' || b[len(b)-2] != '"' {
		return ""
	}
	b = b[:len(b)-2]
	return string(b[bytes.LastIndexByte(b, '"')+1:])
}

// step goes past one character of a string.
func (t *jsonText) step() {
	switch t.b[t.at] {
	case '"':
		t.in = false
		t.at++
	case '\\':
		if t.at+1 < len(t.b) && t.b[t.at+1] == 'u' {
			t.at += 4
		}
		t.at += 2
	default:
		t.at++
	}
}
