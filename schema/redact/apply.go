package redact

// Text takes the secrets out of text of any kind, which field names for the
// receipt. It returns b itself where there are none.
func (r *Redactor) Text(field string, b []byte) []byte {
	if r == nil {
		return b
	}
	return r.apply(field, b, false)
}

// JSON is Text for NDJSON lines or a JSON document, which stay valid: secrets
// are looked for inside of strings, in escaped form. What stands in an "argv",
// "command" or "args" array is judged as the arguments of a program first.
func (r *Redactor) JSON(field string, b []byte) []byte {
	if r == nil {
		return b
	}
	return r.apply(field, r.arguments(field, b), true)
}

// Name is Text without tags, for the members of sets that shall not differ by a
// secret's value.
func (r *Redactor) Name(field, s string) string {
	if r == nil {
		return s
	}
	return Untag(string(r.Text(field, []byte(s))))
}

// apply replaces until what it found on the way taught it nothing new.
func (r *Redactor) apply(field string, b []byte, json bool) []byte {
	b, _ = r.upTo(len(b), field, b, json)
	return b
}

// upTo is apply for what begins before the limit. It returns the text without
// secrets and how much of b that stands for: the limit, or more where a secret
// goes on behind it.
func (r *Redactor) upTo(limit int, field string, b []byte, json bool) ([]byte, int) {
	used := -1
	for {
		known := r.matcher.Load()
		forms := known.text
		if json {
			forms = known.json
		}
		out, n, learned := r.replace(limit, field, b, forms)
		if used < 0 {
			used = n
		}
		if !learned {
			return out, used
		}
		b, limit = out, len(out)
	}
}

// replace replaces every secret that begins before the limit, and cuts off what
// is behind. The flag tells that a new one is known since.
func (r *Redactor) replace(limit int, field string, b []byte, forms *matcher) (out []byte, used int, learned bool) {
	// The next finding of each kind, while it is still ahead.
	var next [3]found
	for i := range next {
		next[i].start = -1
	}
	for from := 0; ; {
		best := found{start: limit}
		for i, find := range [3]func([]byte, int) (found, bool){forms.next, nextShape, nextMarked} {
			if next[i].start < from {
				var ok bool
				if next[i], ok = find(b, from); !ok {
					next[i].start = len(b)
				}
			}
			if f := next[i]; f.start < best.start || f.start == best.start && f.start < limit && f.end > best.end {
				best = f
			}
		}
		if best.start >= limit {
			if out == nil {
				return b[:limit], limit, learned
			}
			return append(out, b[from:max(from, limit)]...), max(from, limit), learned
		}
		if best.with == "" {
			value := string(b[best.start:best.end])
			best.with = r.replacement(best.rule, value)
			if best.rule == RuleURL || best.rule == RuleArgument {
				learned = r.learn(best.rule, value) || learned
			}
		}
		out = append(append(out, b[from:best.start]...), best.with...)
		r.count(best.rule, field)
		from = best.end
	}
}

// learn makes a value known that the evidence itself showed to be secret. It
// reports whether that is new.
func (r *Redactor) learn(rule, value string) bool {
	before := r.matcher.Load()
	return r.Add(rule, value) && r.matcher.Load() != before
}

// Finds tells whether any known secret stands in b, as text or as JSON.
func (r *Redactor) Finds(b []byte) bool {
	if r == nil {
		return false
	}
	known := r.matcher.Load()
	_, text := known.text.next(b, 0)
	_, json := known.json.next(b, 0)
	return text || json
}
