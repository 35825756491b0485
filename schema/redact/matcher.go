package redact

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
)

// matcher finds known secrets in all their forms. A form is at least MinSecret
// bytes long, so one of the positions that are multiples of stride lies in it
// with a whole gram behind it, at an offset below stride. Only those positions
// are looked at: a bitmap says whether any form has the four bytes there, and a
// table which.
type matcher struct {
	forms   []form
	grams   map[uint32][]place
	bitmap  [1 << 11]uint64 // 16 KiB: one bit for each hash of a gram
	byFirst [256][]int32    // forms by their first byte
	longest int             // form, in bytes
}

const (
	gram   = 4
	stride = MinSecret - gram + 1
)

// form is one way in which a secret may be written, and what replaces it.
type form struct{ text, with, rule string }

type place struct{ form, offset int32 }

// found is where a secret stands in a text.
type found struct {
	start, end int
	with, rule string
}

func newMatcher(forms []form) *matcher {
	m := &matcher{forms: forms, grams: map[uint32][]place{}}
	for i, f := range forms {
		m.longest = max(m.longest, len(f.text))
		m.byFirst[f.text[0]] = append(m.byFirst[f.text[0]], int32(i))
		for offset := range stride {
			g := binary.LittleEndian.Uint32([]byte(f.text[offset : offset+gram]))
			m.grams[g] = append(m.grams[g], place{int32(i), int32(offset)})
			h := hash(g)
			m.bitmap[h>>6] |= 1 << (h & 63)
		}
	}
	return m
}

func hash(g uint32) uint32 { return g * 2654435761 >> 15 }

// next finds the first form in b that begins at from or later, of several that
// begin at one place the longest.
func (m *matcher) next(b []byte, from int) (found, bool) {
	if len(m.forms) == 0 {
		return found{}, false
	}
	for i := (from + stride - 1) / stride * stride; i+gram <= len(b); i += stride {
		g := binary.LittleEndian.Uint32(b[i:])
		h := hash(g)
		if m.bitmap[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		best := found{start: -1}
		for _, p := range m.grams[g] {
			f, s := &m.forms[p.form], i-int(p.offset)
			e := s + len(f.text)
			if s < from || e > len(b) || string(b[s:e]) != f.text {
				continue
			}
			if best.start < 0 || s < best.start || s == best.start && e > best.end {
				best = found{s, e, f.with, f.rule}
			}
		}
		if best.start >= 0 {
			return best, true
		}
	}
	return found{}, false
}

// held is how many bytes at the end of b may be the beginning of a form.
func (m *matcher) held(b []byte) int {
	for s := max(0, len(b)-m.longest+1); s < len(b); s++ {
		n := len(b) - s
		for _, i := range m.byFirst[b[s]] {
			if f := m.forms[i].text; len(f) > n && f[:n] == string(b[s:]) {
				return n
			}
		}
	}
	return 0
}

// textForms are the ways in which a secret stands in text: as it is, escaped in
// JSON, and encoded.
func textForms(s secret, with string) []form {
	return distinct(s, with, append([]string{s.value}, encodings(s.value)...))
}

// jsonForms are the ways in which it stands in the text of JSON strings, which
// is never as it is where JSON escapes a part of it.
func jsonForms(s secret, with string) []form {
	return distinct(s, with, encodings(s.value))
}

func distinct(s secret, with string, texts []string) []form {
	var forms []form
	seen := map[string]bool{}
	for _, text := range texts {
		if len(text) >= MinSecret && !seen[text] {
			seen[text] = true
			forms = append(forms, form{text, with, s.rule})
		}
	}
	return forms
}

// encodings are a value's forms in JSON (once and twice), base64 at each
// alignment, hex, and percent-encoding.
func encodings(v string) []string {
	once := escape(v, false)
	all := []string{once, escape(once, false), escape(v, true), hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v))), url.QueryEscape(v), url.PathEscape(v)}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for lead := range 3 {
			text := enc.EncodeToString(append(make([]byte, lead), v...))
			// The first characters hold bits of what is before, the last of what is behind.
			start, end := (lead*8+5)/6, len(text)
			if (lead+len(v))%3 != 0 {
				end--
			}
			all = append(all, text[start:end])
		}
	}
	return all
}

// escape is s as the text of a JSON string.
func escape(s string, ascii bool) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ':
			b.WriteString(`\u00` + string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]))
		case c > '~' && ascii:
			quoted := strconv.QuoteToASCII(string(c))
			b.WriteString(strings.ReplaceAll(quoted[1:len(quoted)-1], `\x`, `\u00`))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
