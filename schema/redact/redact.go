package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// MinSecret is how long a known secret is at least, in bytes: shorter ones would
// be found by chance in what is not secret.
const MinSecret = 8

// maxSecrets bounds how many secrets a run's own evidence may add.
const maxSecrets = 4096

// Rules by which a secret is known, as they stand in its replacement and in the
// receipt. Shapes have their provider's name.
const (
	RuleEnv      = "env"      // the value of an environment variable
	RuleGiven    = "given"    // named by the caller
	RuleArgument = "argument" // an argument that a flag or header marks as secret
	RuleURL      = "url"      // a password or signature in a URL
)

// DefaultEnv are patterns, matched without regard to case, of the names of
// environment variables whose values are secret.
var DefaultEnv = []string{"*_KEY", "*_KEY_ID", "*APIKEY*", "*_TOKEN", "TOKEN", "*_SECRET", "SECRET", "*_SECRET_*", "*PASSWORD*", "*PASSWD*", "*_PASS", "*PASSPHRASE*", "*CREDENTIAL*", "*_PAT", "*_DSN"}

// Redactor takes secrets out. Make one with [New].
type Redactor struct {
	key     []byte
	scope   string // of the key
	matcher atomic.Pointer[known]

	mu      sync.Mutex
	secrets []secret
	have    map[string]bool
	account account
}

// secret is a known value and the rule that it is known by.
type secret struct {
	rule  string
	value string
}

// New makes a Redactor that tags secrets under the key, for tests and for keys that
// the caller keeps.
func New(key []byte) *Redactor {
	r := &Redactor{key: slices.Clone(key), scope: ScopeFile, have: map[string]bool{}}
	r.account.byRule, r.account.byField = map[string]uint64{}, map[string]uint64{}
	r.matcher.Store(&known{&matcher{}, &matcher{}})
	return r
}

// Add makes a value known. It is refused, and false returned, when it is
// shorter than [MinSecret] without surrounding space or there are too many. A
// value of several lines is also known line by line, as a program may print it.
func (r *Redactor) Add(rule, value string) bool {
	value = strings.TrimSpace(value)
	if r == nil || len(value) < MinSecret {
		return false
	}
	values := []string{value}
	for _, line := range strings.Split(value, "\n") {
		// A PEM block's frame is no secret.
		if line = strings.TrimSpace(line); line != value && len(line) >= 2*MinSecret && !strings.HasPrefix(line, "-----") {
			values = append(values, line)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	added := false
	for _, v := range values {
		if r.have[v] {
			continue
		}
		if len(r.secrets) >= maxSecrets {
			return false
		}
		r.have[v] = true
		r.secrets = append(r.secrets, secret{rule, v})
		added = true
	}
	if added {
		r.matcher.Store(r.forms())
	}
	return true
}

// known are the matchers of all known secrets.
type known struct{ text, json *matcher }

// forms makes the matchers. r.mu is held.
func (r *Redactor) forms() *known {
	var text, json []form
	for _, s := range r.secrets {
		with := r.replacement(s.rule, s.value)
		text = append(text, textForms(s, with)...)
		json = append(json, jsonForms(s, with)...)
	}
	return &known{newMatcher(text), newMatcher(json)}
}

// AddEnv makes the values of those variables (K=V) known whose names match one
// of the patterns, and names those whose values are too short.
func (r *Redactor) AddEnv(environ, patterns []string) (tooShort []string) {
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || value == "" || !secretName(name, patterns) {
			continue
		}
		if !plainWord(value) && !r.Add(RuleEnv, value) {
			tooShort = append(tooShort, name)
		}
	}
	return tooShort
}

// secretName tells whether a variable's name matches one of the patterns.
func secretName(name string, patterns []string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(strings.ToUpper(p), name)
		return ok && err == nil
	})
}

// plainWord tells values that variables with secret names have and that are
// none: switches and absolute paths, such as of a file with the secret.
func plainWord(value string) bool {
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "none", "null", "disabled", "enabled", "required", "optional":
		return true
	}
	return strings.HasPrefix(value, "/") && !strings.ContainsAny(value, " \n")
}

// tag is what stands for a secret's value in its replacement.
func (r *Redactor) tag(value string) string {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil)[:4])
}

// replacement stands where a secret stood.
func (r *Redactor) replacement(rule, value string) string {
	return "<redacted:" + rule + ":" + r.tag(value) + ">"
}

// Untag takes the tags out of replacements, so that two texts that differ only
// in a secret become the same.
func Untag(s string) string {
	const open = "<redacted:"
	if !strings.Contains(s, open) {
		return s
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, open)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(open)
		rule, rest, _ := strings.Cut(after, ":")
		if len(rest) >= 9 && rest[8] == '>' && isRule(rule) {
			b.WriteString(rule)
			s = rest[8:]
			continue
		}
		s = after
	}
}

func isRule(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_-0123456789") == ""
}
