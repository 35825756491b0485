package redact

import (
	"bytes"
	"regexp"
	"sync"
)

// shape is a provider's documented form of a credential: what it begins with,
// and the whole.
type shape struct {
	rule   string
	prefix string
	re     pattern
}

func of(rule, prefix, rest string) shape {
	return shape{rule, prefix, lazy(`^` + regexp.QuoteMeta(prefix) + rest)}
}

// shapes are from the providers' public documentation of their token formats.
// Each has a test with one that matches and one that does not.
var shapes = sync.OnceValue(func() []shape {
	return []shape{
		of("aws", "AKIA", `[A-Z2-7]{16}\b`), // IAM identifiers, access keys
		of("aws", "ASIA", `[A-Z2-7]{16}\b`),
		of("anthropic", "sk-ant-", `[a-z0-9]+-[A-Za-z0-9_-]{32,}`),
		of("openai", "sk-proj-", `[A-Za-z0-9_-]{40,}`),
		of("openai", "sk-svcacct-", `[A-Za-z0-9_-]{40,}`),
		of("openai", "sk-admin-", `[A-Za-z0-9_-]{40,}`),
		of("openai", "sk-", `[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}\b`),
		of("github", "ghp_", `[A-Za-z0-9]{36,}`),
		of("github", "gho_", `[A-Za-z0-9]{36,}`),
		of("github", "ghu_", `[A-Za-z0-9]{36,}`),
		of("github", "ghs_", `[A-Za-z0-9]{36,}`),
		of("github", "ghr_", `[A-Za-z0-9]{36,}`),
		of("github", "github_pat_", `[A-Za-z0-9]{22}_[A-Za-z0-9]{59}`),
		of("gitlab", "glpat-", `[A-Za-z0-9_-]{20,}`),
		of("google", "AIza", `[A-Za-z0-9_-]{35}\b`),
		of("google", "ya29.", `[A-Za-z0-9_-]{30,}`),
		of("google", "GOCSPX-", `[A-Za-z0-9_-]{28}`),
		of("slack", "xoxb-", `[0-9]{8,}-[A-Za-z0-9-]{16,}`),
		of("slack", "xoxp-", `[0-9]{8,}-[A-Za-z0-9-]{16,}`),
		of("slack", "xapp-", `[0-9]-[A-Za-z0-9]+-[0-9]+-[a-f0-9]{32,}`),
		of("stripe", "sk_live_", `[A-Za-z0-9]{24,}`),
		of("stripe", "sk_test_", `[A-Za-z0-9]{24,}`),
		of("stripe", "rk_live_", `[A-Za-z0-9]{24,}`),
		of("stripe", "whsec_", `[A-Za-z0-9]{32,}`),
		of("npm", "npm_", `[A-Za-z0-9]{36}\b`),
		of("pypi", "pypi-AgEIcHlwaS5vcmc", `[A-Za-z0-9_-]{50,}`),
		of("huggingface", "hf_", `[A-Za-z0-9]{34,}`),
		of("sendgrid", "SG.", `[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}`),
		of("digitalocean", "dop_v1_", `[a-f0-9]{64}`),
		of("databricks", "dapi", `[a-f0-9]{32}\b`),
		of("shopify", "shpat_", `[a-fA-F0-9]{32}`),
		of("vault", "hvs.", `[A-Za-z0-9_-]{24,}`),
		of("grafana", "glsa_", `[A-Za-z0-9]{32}_[a-f0-9]{8}`),
		of("linear", "lin_api_", `[A-Za-z0-9]{40}`),
		of("jwt", "eyJ", `[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}`),
	}
})

const (
	shortest     = 20      // match of any shape, in bytes
	shortestPart = 12      // of one, that is cut off at the end of a stream, in bytes
	maxToken     = 8 << 10 // bytes of a run that are looked at
)

// tokenByte has the bytes that tokens are made of.
var tokenByte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.") {
		t[c] = true
	}
	return t
}()

// byFirst has the shapes by their first byte.
var byFirst = sync.OnceValue(func() *[256][]shape {
	var by [256][]shape
	for _, s := range shapes() {
		by[s.prefix[0]] = append(by[s.prefix[0]], s)
	}
	return &by
})

// nextShape finds the first credential of a known shape that begins at from or
// later. Tokens stand alone: before them is no byte that tokens are made of, or
// a dot. A run of such bytes that is long enough to be one covers a position
// that is a multiple of shortest, so only those are looked at.
func nextShape(b []byte, from int) (found, bool) {
	for i := from; i < len(b); {
		// The next position that may be inside of a run that is long enough.
		p := min(i+shortest-1, len(b)-1)
		if !tokenByte[b[p]] {
			i = p + 1
			continue
		}
		start := p
		for start > i && tokenByte[b[start-1]] {
			start--
		}
		end := p + 1
		for end < len(b) && tokenByte[b[end]] {
			end++
		}
		if end-start >= shortest {
			if f, ok := shapeIn(b, start, end); ok {
				return f, true
			}
		}
		i = end + 1
	}
	return found{}, false
}

// shapeIn looks into one run of token bytes. What follows it belongs to the
// text: some shapes go on behind the run.
func shapeIn(b []byte, start, end int) (found, bool) {
	for s := start; s < end; {
		for _, shape := range byFirst()[b[s]] {
			if !bytes.HasPrefix(b[s:end], []byte(shape.prefix)) {
				continue
			}
			if at := shape.re().FindIndex(b[s:min(len(b), s+maxToken)]); at != nil {
				return found{start: s, end: s + at[1], rule: shape.rule}, true
			}
		}
		dot := bytes.IndexByte(b[s:end], '.')
		if dot < 0 {
			break
		}
		s += dot + 1
	}
	return found{}, false
}

// heldShape is how many bytes at the end of b may be the beginning of a
// credential that goes on behind it.
func heldShape(b []byte) int {
	start := len(b)
	for start > 0 && len(b)-start < maxToken && tokenByte[b[start-1]] {
		start--
	}
	if start == len(b) || len(b)-start >= maxToken {
		return 0
	}
	for s := start; ; {
		for _, shape := range byFirst()[b[s]] {
			n := min(len(shape.prefix), len(b)-s)
			if string(b[s:s+n]) == shape.prefix[:n] {
				return len(b) - s
			}
		}
		dot := bytes.IndexByte(b[s:], '.')
		if dot < 0 || s+dot+1 >= len(b) {
			return 0
		}
		s += dot + 1
	}
}
