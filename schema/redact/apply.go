package redact

import (
	"bytes"
	"sync"
)

// Text takes the secrets out of text of any kind, which field names for the
// receipt. It returns b itself where there are none.
func (r *Redactor) Text(field string, b []byte) []byte {
	if r == nil {
		return b
	}
	out, _ := r.upTo(len(b), pass{field: field}, b)
	return out
}

// JSON is Text for NDJSON lines or a JSON document, which stay valid: secrets
// are looked for inside of strings, in escaped form, and the words of the format
// are left alone. What stands in an "argv", "command" or "args" array is judged as
// the arguments of a program first.
func (r *Redactor) JSON(field string, b []byte) []byte {
	return r.Line(field, b, 0)
}

// Line is JSON for a line whose first bytes, so many of them, are the format's own: the
// search begins behind them.
func (r *Redactor) Line(field string, b []byte, head int) []byte {
	if r == nil {
		return b
	}
	b = r.arguments(field, b)
	out, _ := r.upTo(len(b), pass{field: field, json: true, head: head}, b)
	return out
}

// Value is JSON for a value that may be anything, such as a tool's parameters: a number
// that is a secret becomes a string.
func (r *Redactor) Value(field string, b []byte) []byte {
	if r == nil {
		return b
	}
	b = r.arguments(field, b)
	out, _ := r.upTo(len(b), pass{field: field, json: true, numbers: true}, b)
	return out
}

// Name is Text without tags, for the members of sets that shall not differ by a
// secret's value.
func (r *Redactor) Name(field, s string) string {
	if r == nil {
		return s
	}
	buf := names.Get().(*[]byte)
	defer names.Put(buf)
	b := append((*buf)[:0], s...)
	*buf = b
	clean := r.Text(field, b)
	if len(clean) == len(b) && (len(b) == 0 || &clean[0] == &b[0]) {
		return Untag(s)
	}
	return Untag(string(clean))
}

// names are buffers for Name, which is called for each path of the surface.
var names = sync.Pool{New: func() any { return new([]byte) }}

// Finds reports whether b may hold a known secret in any form. Others, that rules or
// shapes would show, are not looked for.
func (r *Redactor) Finds(b []byte) bool {
	if r == nil {
		return false
	}
	_, ok := r.matcher.Load().next(b, 0, false)
	return ok
}

// Longest is how long the longest form of a known secret is, in bytes.
func (r *Redactor) Longest() int { return r.matcher.Load().longest }

// pass is how a text is gone through.
type pass struct {
	field   string
	json    bool
	numbers bool // of JSON may be secret, too
	head    int  // bytes in which nothing secret begins
}

// upTo replaces what begins before the limit, until what it found on the way
// taught it nothing new. It returns the text without secrets and how much of b that
// stands for: the limit, or more where a secret goes on behind it.
func (r *Redactor) upTo(limit int, p pass, b []byte) ([]byte, int) {
	used := -1
	for {
		out, n, new := r.replace(limit, p, b)
		if used < 0 {
			used = n
		}
		if len(new) == 0 || !r.learn(new) {
			return out, used
		}
		b, limit = out, len(out)
	}
}

// replace replaces every secret that begins before the limit, and cuts off what
// is behind. It returns those that rules showed, too.
func (r *Redactor) replace(limit int, p pass, b []byte) (out []byte, used int, new []shown) {
	known := r.matcher.Load()
	if len(r.rules) == 0 && !known.shows(b[p.head:], p.json) {
		return b[:limit], limit, nil
	}
	text := jsonText{b: b}
	search := newSearch(r.rules, b, p.json, func(from int) (found, bool) { return known.next(b, from, p.json) })
	from := 0 // what is copied next
	for at := 0; ; {
		f, ok := search.next(at, limit)
		if !ok {
			break
		}
		number := false
		if p.numbers {
			if begin, ok := text.number(f.start, f.end); ok {
				f.start, number = begin, true
			}
		}
		if p.json && !number {
			if f.end = text.clamp(f.start, f.end); f.end <= f.start || f.with == "" &&
				r.words.have(string(b[f.start:f.end])) || isFormal(p.field, text.key(), text.whole()) {
				at = f.start + 1
				continue
			}
		}
		if f.with == "" {
			value := string(b[f.start:f.end])
			f.with = r.replacement(f.rule, value)
			if f.rule == RuleURL || f.rule == RuleArgument {
				new = append(new, shown{f.rule, value})
			}
		}
		if number {
			f.with = `"` + f.with + `"`
		}
		out = append(append(out, b[from:f.start]...), f.with...)
		r.count(f.rule, p.field)
		from, at = f.end, f.end
	}
	switch used = max(from, limit); {
	case out == nil && from == 0:
		return b[:limit], limit, new
	default:
		return append(out, b[from:used]...), used, new
	}
}

// shows reports whether anything secret may stand in b. It is all that most lines pay.
func (m *matcher) shows(b []byte, json bool) bool {
	if _, ok := m.next(b, 0, json); ok {
		return true
	}
	if _, ok := nextShape(b, 0); ok {
		return true
	}
	if bytes.Contains(b, pemBegin) || bytes.Contains(b, headerEnd) {
		return true
	}
	addresses := urls{b: b, json: json}
	_, ok := addresses.next(0)
	return ok
}

// search finds secrets of all kinds in one text.
type search struct {
	kinds []func(from int) (found, bool)
	// The next finding of each kind, while it is still ahead; it starts at the end
	// of the text where there is none.
	ahead []found
	end   int
}

func newSearch(rules []Rule, b []byte, json bool, known func(from int) (found, bool)) *search {
	addresses := urls{b: b, json: json}
	s := &search{end: len(b), kinds: []func(int) (found, bool){
		known,
		func(from int) (found, bool) { return nextShape(b, from) },
		func(from int) (found, bool) { return nextPrivateKey(b, from) },
		func(from int) (found, bool) { return nextHeader(b, from) },
		addresses.next,
	}}
	for _, rule := range rules {
		all := &matches{re: rule.pattern, b: b}
		s.kinds = append(s.kinds, func(from int) (found, bool) {
			f, ok := all.next(from)
			f.rule = rule.Name
			return f, ok
		})
	}
	s.ahead = make([]found, len(s.kinds))
	for i := range s.ahead {
		s.ahead[i].start = -1
	}
	return s
}

// next is the first finding between from and limit, of those that begin at one place
// the longest.
func (s *search) next(from, limit int) (best found, ok bool) {
	best.start = limit
	for i, find := range s.kinds {
		f := &s.ahead[i]
		if f.start < from {
			if *f, ok = find(from); !ok {
				f.start = s.end
			}
		}
		if f.start < best.start || f.start == best.start && f.start < limit && f.end > best.end {
			best = *f
		}
	}
	return best, best.start < limit
}
