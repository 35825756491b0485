package redact

import (
	"encoding/base64"
	"slices"
	"strings"
)

// formsOf are the ways in which a secret may be written: as it is, escaped in
// JSON, and encoded. Shorter ones than MinSecret would be found by chance.
func formsOf(value, with, rule string, words *vocabulary) []form {
	var forms []form
	all := encodings(value)
	if len(value) <= maxTwice {
		for _, once := range []string{inHex(value, hexDigits, "", nil),
			base64.StdEncoding.EncodeToString([]byte(value))} {
			all = append(all, encodings(once)...)
		}
	}
	slices.Sort(all)
	for _, text := range append(slices.Compact(all), value) {
		if len(text) >= MinSecret {
			// As it is, a value stands in JSON only where nothing is escaped in it,
			// and then it is among the encodings.
			forms = append(forms, form{text: text, with: with, rule: rule, textOnly: words.have(text)})
		}
	}
	if last := len(forms) - 1; last >= 0 && escape(value) != value {
		forms[last].textOnly = true
	}
	return forms
}

// encodings are a value's forms in JSON (once and twice), in small and capital letters, base64 at each alignment, hex,
// and percent-encoding. Where line breaks divide one, or escapes stand for its characters, see unfold.
func encodings(v string) []string {
	once := escape(v)
	all := []string{
		once, escape(once),
		strings.ToLower(v), strings.ToUpper(v), // as names in DNS questions
	}
	percent := unescaped
	if len(v) > maxPercent {
		percent = percent[:1]
	}
	for _, digits := range []string{hexDigits, strings.ToUpper(hexDigits)} {
		all = append(all, inHex(v, digits, "", nil), inHex(v, digits, "%", nil))
		for _, keep := range percent {
			all = append(all, inHex(v, digits, "%", keep),
				strings.ReplaceAll(inHex(v, digits, "%", keep), "%20", "+"))
		}
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for lead := range 3 {
			text := enc.EncodeToString(append(make([]byte, lead), v...))
			// The first characters hold bits of what is before, the last of what is behind.
			start, end := (lead*8+5)/6, len(text)
			if (lead+len(v))%3 != 0 {
				end--
			}
			pad := strings.Repeat("=", (3-(lead+len(v))%3)%3)
			all = append(all, text[start:end], text[start:], text[start:]+pad) // the last two: nothing is behind
		}
	}
	return all
}

const hexDigits = "0123456789abcdef"

// unescaped are the bytes that percent-encodings leave as they are, beside letters
// and digits: RFC 3986, with '/', as JavaScript does, as Go does in paths, and as HTML
// forms do.
var unescaped = []func(byte) bool{among("-._~"), among("-._~/"), among("-._~!*'()"), among("-._~$&+=:@"),
	among("-._*")}

// maxTwice is up to how many bytes a secret is looked for in two encodings at once: in
// any behind hex or base64.
const maxTwice = 1 << 10

// maxPercent is up to how many bytes a secret is looked for in each of them.
const maxPercent = 16 << 10

func among(more string) func(byte) bool {
	return func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(more, c) >= 0
	}
}

// inHex is v with each byte in hex behind a mark, except those that keep accepts; nil accepts none.
func inHex(v, digits, mark string, keep func(byte) bool) string {
	var b strings.Builder
	b.Grow(2 * len(v))
	for _, c := range []byte(v) {
		if keep != nil && keep(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteString(mark)
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

// escape is s as the text of a JSON string.
func escape(s string) string {
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
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
