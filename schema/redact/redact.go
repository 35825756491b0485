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

// What a run's own evidence may add to the known secrets: an agent that shows ever
// new ones must not make every later line dearer.
const (
	maxLearned      = 512
	maxLearnedBytes = 256 << 10
)

// Rules by which a secret is known, as they stand in its replacement and in the
// receipt. Shapes have their provider's name.
const (
	RuleEnv      = "env"      // the value of an environment variable
	RuleGiven    = "given"    // named by the caller
	RuleArgument = "argument" // an argument that a flag or header marks as secret
	RuleURL      = "url"      // a password or signature in a URL

	ruleKey = "private-key"
	ruleCut = "cut" // the first part of a secret, at the end of what was cut
)

// DefaultEnv are patterns, matched without regard to case, of the names of
// environment variables whose values are secret.
var DefaultEnv = []string{"*_KEY", "*_KEY_ID", "*APIKEY*", "*_TOKEN", "TOKEN", "*_SECRET", "SECRET", "*_SECRET_*",
	"*PASSWORD*", "*PASSWD*", "*_PASS", "*PASSPHRASE*", "*CREDENTIAL*", "*_PAT", "*_DSN"}

// Redactor takes secrets out. Make one with [New].
type Redactor struct {
	key     []byte
	scope   string // of the key
	unkept  error  // see Unkept
	matcher atomic.Pointer[matcher]
	rules   []Rule // set before use

	mu      sync.Mutex
	words   vocabulary
	forms   []form          // of all known secrets
	have    map[string]bool // known secrets
	learned int             // how many of them the evidence showed
	room    int             // bytes that it still may show
	missed  bool            // it showed more
	account account
}

// New makes a Redactor that tags secrets under the key, for tests and for keys that
// the caller keeps.
func New(key []byte) *Redactor {
	r := &Redactor{key: slices.Clone(key), scope: scopeFile, have: map[string]bool{}, room: maxLearnedBytes}
	r.account.byRule, r.account.byField = map[string]uint64{}, map[string]uint64{}
	r.matcher.Store(newMatcher(nil))
	return r
}

// Keep leaves a word alone in JSON, as the words of the format are: the run's id. It
// is called before anything is added.
func (r *Redactor) Keep(word string) {
	if r != nil {
		r.words.more += "\n" + word
	}
}

// Add makes a value known, and reports whether it is. It is refused when it is
// shorter than [MinSecret] without surrounding space. A value of several lines is
// also known line by line, as a program may print it.
func (r *Redactor) Add(rule, value string) bool {
	value = strings.TrimSpace(value)
	if r == nil || len(value) < MinSecret {
		return false
	}
	values := []string{value}
	for _, line := range strings.Split(value, "\n") {
		// A PEM block's frame is no secret.
		if line = strings.TrimSpace(line); line != value && len(line) >= 2*MinSecret &&
			!strings.HasPrefix(line, "-----") {
			values = append(values, line)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	added := false
	for _, v := range values {
		added = r.add(rule, v) || added
	}
	if added {
		r.matcher.Store(newMatcher(r.forms))
	}
	return true
}

// add makes a value known, and reports whether it is new. r.mu is held; the matcher is
// the caller's to make.
func (r *Redactor) add(rule, value string) bool {
	if r.have[value] || strings.Contains(frames(), value) {
		return false
	}
	r.have[value] = true
	r.forms = append(r.forms, formsOf(value, r.replacement(rule, value), rule, &r.words)...)
	return true
}

// learn makes values known that the evidence itself showed to be secret. It
// reports whether any is new.
func (r *Redactor) learn(values []shown) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	added := false
	for _, s := range values {
		value := strings.TrimSpace(s.value)
		if len(value) < MinSecret || r.have[value] || placeholder().MatchString(value) {
			continue
		}
		if r.learned >= maxLearned || len(value) > r.room {
			r.missed = true
			continue
		}
		r.learned, r.room = r.learned+1, r.room-len(value)
		added = r.add(s.rule, value) || added
	}
	if added {
		r.matcher.Store(newMatcher(r.forms))
	}
	return added
}

// shown is a secret that the evidence shows, and the rule.
type shown struct{ rule, value string }

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

// secretName reports whether a variable's name matches one of the patterns.
func secretName(name string, patterns []string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(patterns, func(p string) bool {
		p = strings.ToUpper(p)
		if word := strings.Trim(p, "*"); !strings.ContainsAny(word, `*?[\`) && !strings.Contains(name, word) {
			return false // as most are, and Match tries each position
		}
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

// plainWord reports whether a value is none of a secret, though variables with
// secret names have it: a switch, or an absolute path, as of a file with the secret.
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

const open = "<redacted:" // how every replacement begins

// replacement stands where a secret stood.
func (r *Redactor) replacement(rule, value string) string {
	return open + rule + ":" + r.tag(value) + ">"
}

// Untag takes the tags out of replacements, so that two texts that differ only
// in a secret become the same.
func Untag(s string) string {
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

// Shorten puts one character in the place of each replacement: for a line that
// redaction made longer than a line may be.
func Shorten(b []byte) []byte { return replaced().ReplaceAll(b, []byte("*")) }

var replaced = lazy(open + `[a-z0-9_-]+:[0-9a-f]{8}>`)

func isRule(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_-0123456789") == ""
}
