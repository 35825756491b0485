package redact

import (
	"bytes"
	"regexp"
)

// What is marked as secret by what stands around it: private keys, headers,
// URLs. In JSON text a value ends where the string does.

var (
	pemBegin = []byte("-----BEGIN ")
	pemKey   = regexp.MustCompile(`^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)
	pemEnd   = regexp.MustCompile(`-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)

	headerName  = []byte("uthorization")
	headerValue = regexp.MustCompile(`^uthorization["']?\s*[:=]\s*["']?(?:(?:[Bb]earer|[Bb]asic|[Tt]oken|[Dd]igest|AWS4-HMAC-SHA256)\s+)?([^\s"'\\<>,;]{8,})`)

	scheme     = []byte("://")
	userinfo   = regexp.MustCompile(`^://[^\s"'\\<>/?#@:]*:([^\s"'\\<>/?#@]{1,})@`)
	urlRest    = regexp.MustCompile(`^://(?:[^\s"'\\]|\\u0026)*`)
	signedPart = regexp.MustCompile(`(?:[?&;]|\\u0026)(?i:x-amz-signature|x-amz-security-token|x-goog-signature|awsaccesskeyid|signature|sig|access_token|api_key|apikey|token|password|client_secret)=([^&\s"'\\<>#]{4,})`)
)

// maxPEM is how much of a private key whose end is missing is taken for it, in bytes.
const maxPEM = 16 << 10

// nextMarked finds the first marked secret that begins at from or later.
func nextMarked(b []byte, from int) (found, bool) {
	best := found{start: len(b)}
	for at := from; ; {
		i := bytes.Index(b[at:], pemBegin)
		if i < 0 || at+i >= best.start {
			break
		}
		s := at + i
		if head := pemKey.FindIndex(b[s:min(len(b), s+100)]); head != nil {
			e := min(len(b), s+maxPEM)
			if tail := pemEnd.FindIndex(b[s:e]); tail != nil {
				e = s + tail[1]
			} else if quote := bytes.IndexByte(b[s:e], '"'); quote >= 0 {
				e = s + quote
			}
			best = found{start: s, end: e, rule: "private-key"}
			break
		}
		at = s + len(pemBegin)
	}
	for at := from; ; {
		i := bytes.Index(b[at:], headerName)
		if i < 0 || at+i >= best.start {
			break
		}
		s := at + i
		if v := headerValue.FindSubmatchIndex(b[s:min(len(b), s+maxToken)]); v != nil && s+v[2] < best.start && s+v[2] >= from {
			best = found{start: s + v[2], end: s + v[3], rule: RuleArgument}
			break
		}
		at = s + len(headerName)
	}
	for at := wordBefore(b, from); ; { // of a URL that was begun, too
		i := bytes.Index(b[at:], scheme)
		if i < 0 || at+i >= best.start {
			break
		}
		s := at + i
		if f, ok := inURL(b, s, from); ok {
			if f.start < best.start {
				best = f
			}
			break
		}
		at = s + len(scheme)
	}
	return best, best.start < len(b)
}

// wordBefore is where the word begins that the place is in.
func wordBefore(b []byte, at int) int {
	low := max(0, at-maxToken)
	return low + bytes.LastIndexAny(b[low:at], " \t\r\n\"'") + 1
}

// inURL finds the first password or signature in the URL whose "://" is at s.
func inURL(b []byte, s, from int) (found, bool) {
	rest := b[s:min(len(b), s+maxToken)]
	if v := userinfo.FindSubmatchIndex(rest); v != nil && s+v[2] >= from {
		return found{start: s + v[2], end: s + v[3], rule: RuleURL}, true
	}
	whole := urlRest.Find(rest)
	for _, v := range signedPart.FindAllSubmatchIndex(whole, -1) {
		if s+v[2] >= from {
			return found{start: s + v[2], end: s + v[3], rule: RuleURL}, true
		}
	}
	return found{}, false
}

// heldMarked is how many bytes at the end of b may be the beginning of a marked
// secret: an unfinished private key, or an unfinished word behind a header's
// name or in a URL.
func heldMarked(b []byte) int {
	b = b[max(0, len(b)-maxPEM):]
	if i := lastIndex(b, pemBegin); i >= 0 {
		if tail := b[i:]; !pemEnd.Match(tail) && (len(tail) < 60 || pemKey.Match(tail)) {
			return len(b) - i
		}
	}
	word := bytes.LastIndexAny(b, " \t\r\n\"'<>") + 1
	held := 0
	if tail := b[word:]; len(tail) < maxToken && bytes.Contains(tail, scheme) {
		held = len(tail)
	}
	line := bytes.LastIndexByte(b, '\n') + 1
	if tail := b[line:]; len(tail) < maxToken {
		if i := bytes.LastIndex(tail, headerName); i >= 0 && len(bytes.Fields(tail[i:])) <= 3 {
			held = max(held, len(tail)-i)
		}
	}
	for n := min(len(b), len(pemBegin)-1); n > held; n-- {
		if bytes.HasPrefix(pemBegin, b[len(b)-n:]) {
			held = n
		}
	}
	return held
}

// lastIndex is bytes.LastIndex for text in which sep is rare: it searches
// forward, which is many times faster.
func lastIndex(b, sep []byte) int {
	last := -1
	for from := 0; ; {
		i := bytes.Index(b[from:], sep)
		if i < 0 {
			return last
		}
		last = from + i
		from = last + 1
	}
}
