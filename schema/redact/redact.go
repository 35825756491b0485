package redact

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/v1"
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
		if !harmless(value) && !r.Add(RuleEnv, value) {
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

// harmless reports whether a value is none of a secret, though variables with
// secret names have it: a switch, or an absolute path, as of a file with the secret.
func harmless(value string) bool {
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

// Line is JSON but skips the first head bytes.
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

func (r *Redactor) count(rule, field string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.total++
	r.account.byRule[rule]++
	r.account.byField[field]++
}

// Counts tells how many secrets were taken out so far, by rule and by field.
func (r *Redactor) Counts() (total uint64, byRule, byField map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.account.total, maps.Clone(r.account.byRule), maps.Clone(r.account.byField)
}

// NotSearched names what secrets are not found in.
func (r *Redactor) NotSearched() []string {
	list := NotSearched()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missed {
		list = append(list, "unmarked copies of secrets that the run showed after too many others")
	}
	return list
}

// Known is how many secrets are known.
func (r *Redactor) Known() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.have)
}

// Arguments finds the secrets among a program's arguments, the program first,
// and makes them known. It returns the arguments without them, and args itself
// where there are none.
func (r *Redactor) Arguments(field string, args []string) []string {
	if r == nil {
		return args
	}
	out := make([]string, len(args))
	var new []shown
	program := ""
	if len(args) > 0 {
		program = path.Base(args[0])
	}
	next := false // the word is the argument of a secret flag
	for i, arg := range args {
		out[i] = arg
		secrets := secretParts(program, arg, next && !strings.HasPrefix(arg, "-"), i)
		next = i > 0 && (secretFlag().MatchString(arg) && !notSecret().MatchString(arg) &&
			!strings.Contains(arg, "=") || separate[program][arg] &&
			(program != "docker" && program != "podman" || len(args) > 1 && args[1] == "login"))
		for _, s := range secrets {
			out[i] = strings.ReplaceAll(out[i], s, r.replacement(RuleArgument, s))
			if at := strings.LastIndex(arg, s); len(s) < shortestEverywhere && len(secrets) == 1 {
				out[i] = arg[:at] + r.replacement(RuleArgument, s) + arg[at+len(s):]
			}
			r.count(RuleArgument, field)
			new = append(new, shown{RuleArgument, s})
		}
	}
	changed := len(new) > 0
	if changed {
		r.learn(new)
	}
	if !changed {
		return args
	}
	return out
}

// arguments judges every list of arguments in JSON text.
func (r *Redactor) arguments(field string, b []byte) []byte {
	var out []byte
	copied := 0
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], '[')
		if i < 0 {
			break
		}
		list := at + i
		at = list + 1
		if !isArgumentList(b[:list]) {
			continue
		}
		args, n := stringList(b[list:])
		if n == 0 {
			continue
		}
		at = list + n
		clean := r.Arguments(field, args)
		if len(args) == 0 || &clean[0] == &args[0] {
			continue
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if e.Encode(clean) != nil {
			continue // strings always encode
		}
		out = append(append(out, b[copied:list]...), bytes.TrimRight(text.Bytes(), "\n")...)
		copied = at
	}
	if out == nil {
		return b
	}
	return append(out, b[copied:]...)
}

// Key is the scope and the id of the key in use. The id is derived from the key
// and says nothing about it.
func (r *Redactor) Key() (scope, id string) {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte("assay-run redaction key id"))
	return r.scope, hex.EncodeToString(mac.Sum(nil)[:8])
}

// Unkept is why the host's key could not be kept, so that the tags of this bundle
// cannot be compared with those of others. nil: it is kept, or not wanted.
func (r *Redactor) Unkept() error {
	if r == nil {
		return nil
	}
	return r.unkept
}

// Use adds rules. It is called before anything is redacted.
func (r *Redactor) Use(rules []Rule) { r.rules = append(r.rules, rules...) }

// Writer takes the secrets out of what is written on its way to w, also those
// that are split over several writes. It holds back only what may be the
// beginning of a secret, and gives that out when the next bytes or Close show
// what it is. It is not safe for concurrent use.
func (r *Redactor) Writer(field string, w io.WriteCloser) io.WriteCloser {
	if r == nil {
		return w
	}
	return &stream{r: r, field: field, w: w}
}

// Pieces begins a text. Of a nil Redactor it is nil, and leaves everything.
func (r *Redactor) Pieces(field string) *Pieces {
	if r == nil {
		return nil
	}
	p := &Pieces{}
	p.in = &stream{r: r, field: field, w: &p.out}
	return p
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

// pass is how a text is gone through.
type pass struct {
	field   string
	json    bool
	numbers bool // of JSON may be secret, too
	head    int  // bytes in which nothing secret begins
}

// names are buffers for Name, which is called for each path of the surface.
var names = sync.Pool{New: func() any { return new([]byte) }}

// account counts what was taken out.
type account struct {
	total   uint64
	byRule  map[string]uint64
	byField map[string]uint64
}

// NotSearched names the kinds of content that no Redactor looks into.
func NotSearched() []string {
	return []string{"compressed content", "encrypted content", "images and other binary formats"}
}
