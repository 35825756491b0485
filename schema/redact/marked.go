package redact

import (
	"bytes"
)

// Secrets that are recognized by the text around them: private keys, headers, URLs. In JSON text a value ends where the
// string does.

var (
	pemBegin = []byte("-----BEGIN ")
	pemKey   = lazy(`^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)
	pemEnd   = lazy(`-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)

	headerName  = []byte("uthorization")
	headerEnd   = []byte("zation") // begins with a letter that is rare, so that the search is fast
	headerValue = lazy(`^uthorization["']?[ \t]*[:=][ \t]*["']?(?:(?:[Bb]earer|[Bb]asic|[Tt]oken|[Dd]igest|AWS4-HMAC-SHA256)[ \t]+)?([^\s"'\\<>,;]{8,})`)

	scheme     = []byte("://")
	userinfo   = lazy(`^://[^\s"'\\<>/?#@:]*:([^\s"'\\<>/?#@]{1,})@`)
	signedPart = lazy(`(?:[?&;]|\\u0026)(?i:x-amz-signature|x-amz-security-token|x-goog-signature|awsaccesskeyid|signature|sig|access_token|api_key|apikey|token|password|client_secret)=([^&\s"'\\<>#]{4,})`)
	// cutPassword matches a URL that ends in what may be a password, and is no port.
	cutPassword = lazy(`://[^\s"'\\<>/?#@:]*:([^\s"'\\<>/?#@]*[^0-9\s"'\\<>/?#@][^\s"'\\<>/?#@]*)$`)
)

// maxPEM bounds how much text is taken for a private key if its end is missing, in bytes.
const maxPEM = 16 << 10

func nextPrivateKey(b []byte, from int) (found, bool) {
	for {
		i := bytes.Index(b[from:], pemBegin)
		if i < 0 {
			return found{}, false
		}
		s := from + i
		if !pemKey().Match(b[s:min(len(b), s+100)]) {
			from = s + len(pemBegin)
			continue
		}
		e := min(len(b), s+maxPEM)
		if tail := pemEnd().FindIndex(b[s:e]); tail != nil {
			e = s + tail[1]
		}
		return found{start: s, end: e, rule: ruleKey}, true
	}
}

func nextHeader(b []byte, from int) (found, bool) {
	for {
		i := bytes.Index(b[from:], headerEnd)
		if i < 0 {
			return found{}, false
		}
		s := from + i - (len(headerName) - len(headerEnd))
		if s < 0 || !bytes.HasPrefix(b[s:], headerName) {
			from += i + len(headerEnd)
			continue
		}
		if v := headerValue().FindSubmatchIndex(b[s:min(len(b), s+maxToken)]); v != nil {
			return found{start: s + v[2], end: s + v[3], rule: RuleArgument}, true
		}
		from = s + len(headerName)
	}
}

// urls finds the passwords and signatures in URLs, one after the other.
type urls struct {
	b    []byte
	json bool
	// The URL that was found last: its "://", and where it or the next one in it
	// ends.
	start, end int
}

func (u *urls) next(from int) (found, bool) {
	for {
		if from < u.end {
			if v := userinfo().FindSubmatchIndex(u.b[u.start:u.end]); v != nil && u.start+v[2] >= from {
				return found{start: u.start + v[2], end: u.start + v[3], rule: RuleURL}, true
			}
			rest := u.b[max(from, u.start):u.end]
			if bytes.IndexByte(rest, '=') >= 0 {
				if v := signedPart().FindSubmatchIndex(rest); v != nil {
					return found{start: u.end - len(rest) + v[2], end: u.end - len(rest) + v[3], rule: RuleURL}, true
				}
			}
			from = u.end
		}
		i := u.nextScheme(from)
		if i < 0 {
			u.start, u.end = len(u.b), len(u.b)
			return found{}, false
		}
		u.start = i
		u.end = u.start + lengthOfURL(u.b[u.start:min(len(u.b), u.start+maxToken)])
	}
}

// nextScheme is where the next "://" stands from an index on, or -1. JSON text is full of
// colons, so that two slashes are looked for there.
func (u *urls) nextScheme(from int) int {
	mark := scheme
	if u.json {
		mark = scheme[1:]
	}
	for next := from; ; {
		i := bytes.Index(u.b[next:], mark)
		if i < 0 {
			return -1
		}
		at := next + i - (len(scheme) - len(mark))
		if at >= from && bytes.HasPrefix(u.b[at:], scheme) {
			return at
		}
		next += i + 1
	}
}

// lengthOfURL returns the length of the rest of a URL from its "://" on, up to a next URL in it.
func lengthOfURL(b []byte) int {
	for i := len(scheme); i < len(b); i++ {
		switch c := b[i]; {
		case c <= ' ', c == '"', c == '\'', c == '\\' && !bytes.HasPrefix(b[i:], []byte(`\u0026`)):
			return i
		case c == ':' && bytes.HasPrefix(b[i:], scheme):
			return i
		}
	}
	return len(b)
}

// heldMarked is how many bytes at the end of b may be the beginning of a marked
// secret: an unfinished private key, or an unfinished word behind a header's
// name or in a URL, or the first part of what marks one.
func heldMarked(b []byte) int {
	b = b[max(0, len(b)-maxPEM):]
	if i := lastIndex(b, pemBegin); i >= 0 {
		if tail := b[i:]; !pemEnd().Match(tail) && (len(tail) < 60 || pemKey().Match(tail)) {
			return len(b) - i
		}
	}
	held := max(begun(b, pemBegin), begun(b, headerName), begun(b, scheme))
	word := bytes.LastIndexAny(b, " \t\r\n\"'<>") + 1
	if tail := b[word:]; len(tail) < maxToken && bytes.Contains(tail, scheme) {
		held = max(held, len(tail))
	}
	line := bytes.LastIndexByte(b, '\n') + 1
	if tail := b[line:]; len(tail) < maxToken {
		if i := bytes.LastIndex(tail, headerName); i >= 0 && len(bytes.Fields(tail[i:])) <= 3 {
			held = max(held, len(tail)-i)
		}
	}
	return held
}

// begun returns how many bytes at the end of b are an unfinished mark.
func begun(b, mark []byte) int {
	for n := min(len(b), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(b, mark[:n]) {
			return n
		}
	}
	return 0
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
