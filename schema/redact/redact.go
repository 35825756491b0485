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

// MinSecret is the least length of a known secret, in bytes. Shorter ones would occur by chance.
const MinSecret = 8

// Bounds of the secrets that are learned from the evidence. Each makes every later line slower, and an agent could show
// ever new ones.
const (
	maxLearned      = 512
	maxLearnedBytes = 256 << 10
)

// Rules name how a secret was recognized, in its replacement and in the receipt. The rules for credentials by their
// format have their provider's name.
const (
	RuleEnv      = "env"      // the value of an environment variable
	RuleGiven    = "given"    // named by the caller
	RuleArgument = "argument" // an argument that a flag or header marks as secret
	RuleURL      = "url"      // a password or signature in a URL

	ruleKey = "private-key"
	ruleCut = "cut" // the first part of a secret, at the end of a truncated text
)

// DefaultEnv are patterns for the names of environment variables whose values are secret. Case does not matter.
var DefaultEnv = []string{"*_KEY", "*_KEY_ID", "*APIKEY*", "*_TOKEN", "TOKEN", "*_SECRET", "SECRET", "*_SECRET_*",
	"*PASSWORD*", "*PASSWD*", "*_PASS", "*PASSPHRASE*", "*CREDENTIAL*", "*_PAT", "*_DSN"}

// Redactor replaces secrets. Make one with [New].
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
	learned int             // number of them that were learned from the evidence
	room    int             // bytes that may still be learned
	missed  bool            // there was no room to learn some
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

// Keep makes a word part of the format, which is not replaced in JSON: the run's id. Call it before any secret is
// added.
func (r *Redactor) Keep(word string) {
	if r != nil {
		r.words.more += "\n" + word
	}
}

// Add makes a value a known secret, and reports whether it is one. Without surrounding space it must have at least
// [MinSecret] bytes. Of a value of several lines each line is known too, since a program may print it alone.
func (r *Redactor) Add(rule, value string) bool {
	value = strings.TrimSpace(value)
	if r == nil || len(value) < MinSecret {
		return false
	}
	values := []string{value}
	for line := range strings.SplitSeq(value, "\n") {
		// The first and last line of a PEM block are not secret.
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

// add makes a value known, and reports whether it is new. The caller holds r.mu and must then make a new matcher.
func (r *Redactor) add(rule, value string) bool {
	if r.have[value] || strings.Contains(frames(), value) {
		return false
	}
	r.have[value] = true
	r.forms = append(r.forms, formsOf(value, r.replacement(rule, value), rule, &r.words)...)
	return true
}

// learn makes values known that the evidence shows to be secret, and reports whether any is new.
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

// shown is a secret that the evidence shows, with its rule.
type shown struct{ rule, value string }

// AddEnv makes the values of those variables (K=V) known whose names match a pattern. It returns the names of those
// whose values are too short.
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
			return false // faster than Match, which tries each position
		}
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

// harmless reports whether a value is not secret although its variable has a secret name: a switch, or the path of a
// file.
func harmless(value string) bool {
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "none", "null", "disabled", "enabled", "required", "optional":
		return true
	}
	return strings.HasPrefix(value, "/") && !strings.ContainsAny(value, " \n")
}

// tag identifies a secret in its replacement: equal secrets have equal tags.
func (r *Redactor) tag(value string) string {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil)[:4])
}

const open = "<redacted:" // how every replacement begins

// replacement is the text that replaces a secret.
func (r *Redactor) replacement(rule, value string) string {
	return open + rule + ":" + r.tag(value) + ">"
}

// Text replaces the secrets in any text. The receipt counts them under field. It returns b itself if there are none.
func (r *Redactor) Text(field string, b []byte) []byte {
	if r == nil {
		return b
	}
	out, _ := r.upTo(len(b), pass{field: field}, b)
	return out
}

// JSON is Text for NDJSON lines or a JSON document, which stay valid: it replaces secrets inside of strings, also
// escaped ones, and no words of the format. It treats "argv", "command" and "args" arrays as the arguments of a
// program.
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

// Value is JSON for any value, such as a tool's parameters. A number that is a secret becomes a string.
func (r *Redactor) Value(field string, b []byte) []byte {
	if r == nil {
		return b
	}
	b = r.arguments(field, b)
	out, _ := r.upTo(len(b), pass{field: field, json: true, numbers: true}, b)
	return out
}

// Name is Text without tags, for members of sets that must not differ by a secret's value.
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

// Finds reports whether b may hold a known secret in any form. It does not look for unknown secrets.
func (r *Redactor) Finds(b []byte) bool {
	if r == nil {
		return false
	}
	known := r.matcher.Load()
	_, ok := known.next(b, 0, false)
	if !ok {
		_, ok = known.nextFolded(known.unfold(b), 0, false)
	}
	return ok
}

// Longest is the length of the longest form of a known secret, in bytes.
func (r *Redactor) Longest() int { return maxFold * r.matcher.Load().longest }

// upTo replaces the secrets that begin before the limit, and repeats that as long as it learns new ones. It returns
// the new text, and how many bytes of b the text stands for: the limit, or more if a secret ends after it.
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

// replace replaces the secrets that begin before the limit, and cuts off the rest. new are secrets that b shows.
func (r *Redactor) replace(limit int, p pass, b []byte) (out []byte, used int, new []shown) {
	known := r.matcher.Load()
	flat := known.unfold(b[p.head:])
	if _, ok := known.nextFolded(flat, 0, p.json); !ok {
		if flat = nil; len(r.rules) == 0 && !known.shows(b[p.head:], p.json) {
			return b[:limit], limit, nil
		}
	}
	text := jsonText{b: b}
	search := newSearch(r.rules, b, p.json, func(from int) (found, bool) { return known.next(b, from, p.json) })
	if flat != nil {
		search.add(func(from int) (found, bool) {
			f, ok := known.nextFolded(flat, max(0, from-p.head), p.json)
			f.start, f.end = f.start+p.head, f.end+p.head
			return f, ok
		})
	}
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

// Counts returns how many secrets were replaced so far, by rule and by field.
func (r *Redactor) Counts() (total uint64, byRule, byField map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.account.total, maps.Clone(r.account.byRule), maps.Clone(r.account.byField)
}

// NotSearched names the kinds of content in which secrets are not found.
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

// Arguments finds the secrets in the arguments of a program, whose name is the first, and makes them known. It returns
// the arguments without them, or args itself if there are none.
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
	if len(new) == 0 {
		return args
	}
	r.learn(new)
	return out
}

// arguments replaces the secrets in every list of arguments in JSON text.
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

// Key is the scope and the id of the key. The id does not reveal the key.
func (r *Redactor) Key() (scope, id string) {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte("assay-run redaction key id"))
	return r.scope, hex.EncodeToString(mac.Sum(nil)[:8])
}

// Unkept is why the host's key could not be kept, which makes the tags of this bundle incomparable with those of
// others. It is nil if the key is kept, or was not wanted.
func (r *Redactor) Unkept() error {
	if r == nil {
		return nil
	}
	return r.unkept
}

// Use adds rules. Call it before anything is redacted.
func (r *Redactor) Use(rules []Rule) { r.rules = append(r.rules, rules...) }

// Writer replaces the secrets in what is written through it to w, also those that are split over several writes. It
// holds back only what may be the beginning of a secret, until the next bytes or Close. It is not safe for concurrent
// use.
func (r *Redactor) Writer(field string, w io.WriteCloser) io.WriteCloser {
	if r == nil {
		return w
	}
	return &stream{r: r, field: field, w: w}
}

// Pieces begins a text that comes in pieces. A nil Redactor returns nil, which changes nothing.
func (r *Redactor) Pieces(field string) *Pieces {
	if r == nil {
		return nil
	}
	p := &Pieces{}
	p.in = &stream{r: r, field: field, w: &p.out}
	return p
}

// Untag removes the tags from replacements, so that texts that differ only in a secret become equal.
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

// Shorten replaces each replacement by one character, for a line that redaction made too long.
func Shorten(b []byte) []byte { return replaced().ReplaceAll(b, []byte("*")) }

var replaced = lazy(open + `[a-z0-9_-]+:[0-9a-f]{8}>`)

func isRule(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_-0123456789") == ""
}

// pass says how a text is searched.
type pass struct {
	field   string
	json    bool
	numbers bool // numbers in JSON may be secret, too
	head    int  // bytes at the beginning that are not searched
}

// names are buffers for Name, which is called for each path of the surface.
var names = sync.Pool{New: func() any { return new([]byte) }}

// account counts replaced secrets.
type account struct {
	total   uint64
	byRule  map[string]uint64
	byField map[string]uint64
}

// NotSearched names the kinds of content that no Redactor looks into.
func NotSearched() []string {
	return []string{"compressed content", "encrypted content", "images and other binary formats"}
}
