package redact

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"
	"strings"
)

// matcher finds known secrets in all their forms. It never changes.
//
// The stride is such that in every form one of the positions that are multiples of it
// has a whole gram of the form behind it, at an offset below the stride: the longer the
// shortest form is, the fewer positions are looked at. A bitmap says whether any form
// may have the gram there, and a table at which offsets. The time of a search in the sorted forms does not depend on
// how many of them begin alike.
type matcher struct {
	forms   []form  // sorted, each text once
	inner   []int32 // for each form, the longest other one that it begins with, or -1
	stride  int
	grams   map[uint32]uint32 // a bit for each offset
	bitmap  []uint64          // one bit for each hash of a gram
	shift   uint              // of a hash
	longest int               // form, in bytes
}

const (
	gram        = 4
	leastStride = MinSecret - gram + 1
	mostStride  = 32      // the bits of an entry of the table
	maxGrams    = 1 << 14 // in a table with more than the least stride: it is made anew for each secret
)

// strideFor returns the distance between the positions that are looked at.
func strideFor(forms []form) int {
	n := mostStride
	for _, f := range forms {
		n = min(n, len(f.text)-gram+1)
	}
	return max(leastStride, min(n, maxGrams/max(1, len(forms))))
}

// form is one way in which a secret may be written, and what replaces it.
type form struct {
	text, with, rule string
	// textOnly forms are not looked for in JSON: they are escaped there, or are
	// words of the format itself.
	textOnly bool
}

// found is where a secret stands in a text.
type found struct {
	start, end int
	with, rule string
}

func newMatcher(forms []form) *matcher {
	forms = slices.Clone(forms)
	slices.SortStableFunc(forms, func(a, b form) int { return strings.Compare(a.text, b.text) })
	m := &matcher{stride: strideFor(forms)}
	m.grams = make(map[uint32]uint32, m.stride*len(forms))
	for _, f := range forms {
		if last := len(m.forms) - 1; last >= 0 && m.forms[last].text == f.text {
			m.forms[last].textOnly = m.forms[last].textOnly && f.textOnly
			continue
		}
		m.forms = append(m.forms, f)
	}
	var open []int32 // forms that the last one begins with
	for i, f := range m.forms {
		for len(open) > 0 && !strings.HasPrefix(f.text, m.forms[open[len(open)-1]].text) {
			open = open[:len(open)-1]
		}
		inner := int32(-1)
		if len(open) > 0 {
			inner = open[len(open)-1]
		}
		m.inner, open = append(m.inner, inner), append(open, int32(i))
		m.longest = max(m.longest, len(f.text))
		for offset := range m.stride {
			m.grams[binary.LittleEndian.Uint32([]byte(f.text[offset:offset+gram]))] |= 1 << offset
		}
	}
	size := bits.Len(uint(16*len(m.grams)) | 1<<14 - 1) // at most one bit in 16 is set
	m.bitmap, m.shift = make([]uint64, 1<<size/64), uint(32-size)
	for g := range m.grams {
		h := hash(g, m.shift)
		m.bitmap[h>>6] |= 1 << (h & 63)
	}
	return m
}

// hash is a gram's place in the bitmap.
func hash(g uint32, shift uint) uint32 { return g * 2654435761 >> shift }

// next finds the first form in b that begins at from or later, of several that
// begin at one place the longest.
func (m *matcher) next(b []byte, from int, json bool) (found, bool) {
	if len(m.forms) == 0 {
		return found{}, false
	}
	stride, bitmap, shift := m.stride, m.bitmap, m.shift
	for i := (from + stride - 1) / stride * stride; i+gram <= len(b); i += stride {
		g := binary.LittleEndian.Uint32(b[i:])
		h := hash(g, shift)
		if bitmap[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		for offsets, offset := m.grams[g], stride-1; offset >= 0; offset-- {
			if s := i - offset; offsets&(1<<offset) != 0 && s >= from {
				if f := m.at(b[s:], json); f != nil {
					return found{s, s + len(f.text), f.with, f.rule}, true
				}
			}
		}
	}
	return found{}, false
}

// at is the longest form that b begins with, or nil.
func (m *matcher) at(b []byte, json bool) *form {
	b = b[:min(len(b), m.longest)]
	// Such a form is the last one that does not sort after b, or one that this
	// one begins with.
	i := int32(sort.Search(len(m.forms), func(i int) bool { return m.forms[i].text > string(b) })) - 1
	if i < 0 {
		return nil
	}
	same := 0
	for text := m.forms[i].text; same < min(len(b), len(text)) && b[same] == text[same]; {
		same++
	}
	for ; i >= 0; i = m.inner[i] {
		if f := &m.forms[i]; len(f.text) <= same && !(json && f.textOnly) {
			return f
		}
	}
	return nil
}

// held is how many bytes at the end of b may be the beginning of a form.
func (m *matcher) held(b []byte) int {
	for s := max(0, len(b)-m.longest+1); s < len(b); s++ {
		if len(b)-s >= gram {
			g := binary.LittleEndian.Uint32(b[s:])
			h := hash(g, m.shift)
			if m.bitmap[h>>6]&(1<<(h&63)) == 0 || m.grams[g]&1 == 0 {
				continue
			}
		}
		tail := b[s:]
		i := sort.Search(len(m.forms), func(i int) bool { return m.forms[i].text >= string(tail) })
		for ; i < len(m.forms) && strings.HasPrefix(m.forms[i].text, string(tail)); i++ {
			if len(m.forms[i].text) > len(tail) {
				return len(tail)
			}
		}
	}
	return 0
}

// unfold unfolds a text that is whole, if there is anything to find in it.
func (m *matcher) unfold(b []byte) *unfolded {
	if len(m.forms) == 0 {
		return nil
	}
	return unfold(b, m.longest, false)
}

// nextFolded finds the first form that begins at from or later in the text that u is of; u may be nil.
func (m *matcher) nextFolded(u *unfolded, from int, json bool) (found, bool) {
	if u == nil {
		return found{}, false
	}
	k := sort.Search(len(u.parts), func(k int) bool { return u.parts[k].to > from })
	if k == len(u.parts) {
		return found{}, false
	}
	at := u.parts[k].at
	if p := u.parts[k]; from > p.from {
		if at += from - p.from; p.escape { // from is inside of the escape
			if at = len(u.text); k+1 < len(u.parts) {
				at = u.parts[k+1].at
			}
		}
	}
	f, ok := m.next(u.text, at, json)
	if ok {
		f.start, f.end = u.start(f.start), u.end(f.end)
	}
	return f, ok
}

// heldFolded is held for forms that are folded.
func (m *matcher) heldFolded(b []byte) int {
	b = b[max(0, len(b)-maxFold*m.longest):]
	u := unfold(b, m.longest, true)
	if u == nil {
		return 0
	}
	if n := m.held(u.text); n > 0 {
		return len(b) - u.start(len(u.text)-n)
	}
	return len(b) - u.rest
}

// shows reports whether b may hold a secret. For most lines, this is the whole cost.
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

// add adds a kind. Call it before next.
func (s *search) add(find func(from int) (found, bool)) {
	s.kinds, s.ahead = append(s.kinds, find), append(s.ahead, found{start: -1})
}
