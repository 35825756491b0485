package policy

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/assay-run/assay-run/schema"
)

// Kinds of rules, the "rule" key.
const (
	DenyTool              = "deny_tool"                // the target must not be called
	DenyToolParam         = "deny_tool_param"          // not with this value in the parameter
	DenyToolParamMatching = "deny_tool_param_matching" // not with a parameter that matches
	AllowToolParam        = "allow_tool_param"         // only with one of the values
	DenyKeyword           = "deny_keyword"             // not with the word anywhere
	RateLimitTool         = "rate_limit_tool"          // not more often than this
	RequireState          = "require_state"            // only in this state of the run
)

// kinds lists the kinds of rules.
var kinds = []string{DenyTool, DenyToolParam, DenyToolParamMatching, AllowToolParam, DenyKeyword, RateLimitTool,
	RequireState}

// anyTool is the target for every tool.
const anyTool = "*"

// Limits of a rule, in bytes unless noted.
const (
	MaxName       = 128 // of a rule, a tool or a parameter
	maxPattern    = 4 << 10
	maxProgram    = 4096 // instructions of a compiled pattern
	maxValue      = 4 << 10
	maxValues     = 1024
	maxRateLimit  = 100_000 // calls in a window
	defaultWindow = time.Minute
	maxWindow     = 24 * time.Hour
)

// ErrRule is wrapped by every error about a rule that cannot be used at all.
var ErrRule = errors.New("bad rule")

// Rule forbids calls. Which fields it uses depends on Rule:
//
//	deny_tool                 target
//	deny_tool_param           target, key; value: a text in the parameter equals it;
//	                          pattern: one contains it; value_path: one is a path at
//	                          or below it
//	deny_tool_param_matching  target, key, pattern (RE2)
//	allow_tool_param          target, key; value: the parameter must be one of them;
//	                          value_path: or a path at or below one of them
//	deny_keyword              value, target (every tool when empty)
//	rate_limit_tool           target, value: "10" a minute, or "10/30s"
//	require_state             target, key, value: the state must be one of them
//
// Target is a tool's name or "*". Key names a parameter, or is a JSON pointer if it starts with a slash. If the
// parameters are a list, a name is looked up in each element. Texts and keys in lists and objects below the parameter
// count as part of it.
//
// A target is compared without regard to case, surrounding space and invisible characters, since a server may do so.
// To deny, texts are compared without invisible characters, after Unicode normalisation (NFC) and case folding, and
// numbers as numbers. To allow, a text must be equal after normalisation. A path is compared by its parts, with "."
// and ".." resolved; links and mounts are not followed, and a relative path that leaves its directory with ".." is
// denied.
type Rule struct {
	Name      string `json:"name"`
	Rule      string `json:"rule"`
	Target    string `json:"target"`
	Key       string `json:"key"`
	Pattern   string `json:"pattern"`
	Value     Values `json:"value"`
	ValuePath Values `json:"value_path"`
}

// rule is a Rule that is ready to be evaluated. eval returns how a call violates it; it may panic.
type rule struct {
	Rule
	target string // in the form of Alike
	eval   func(c *Call) (reason string, violated bool)
	rate   *RateLimit
	broken string
	added  time.Duration // when a client added it, on the run's clock
}

// compile checks r. A pattern that cannot be used makes a rule that denies every call of its target. Every other
// fault is an error.
func compile(r Rule) (*rule, error) {
	c := &rule{Rule: r, target: Alike(r.Target)}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w %.*q: %w", ErrRule, MaxName, r.Name, err)
	}
	switch r.Rule {
	case DenyTool:
		c.eval = func(*Call) (string, bool) { return "the tool is denied", true }
	case DenyToolParam:
		denied := r.denied()
		c.eval = func(call *Call) (string, bool) {
			return "the parameter has a denied value", call.params().anyText(r.Key, denied)
		}
	case DenyToolParamMatching:
		re, err := compilePattern(r.Pattern)
		if err != nil {
			c.broken = err.Error()
			c.eval = func(*Call) (string, bool) {
				return "the rule's pattern cannot be used, so it denies every call", true
			}
			break
		}
		c.eval = func(call *Call) (string, bool) {
			return "the parameter matches a denied pattern", call.params().anyText(r.Key, func(text any) bool {
				return slices.ContainsFunc(forms(text), func(s string) bool {
					return re.MatchString(s) || re.MatchString(composed(s))
				})
			})
		}
	case AllowToolParam:
		c.eval = func(call *Call) (string, bool) {
			v, ok := call.params().scalar(r.Key)
			switch {
			case !ok:
				return "the parameter is absent or is not a plain value", true
			case v == "":
				return "the parameter is empty", true
			}
			return "the parameter's value is not one of those allowed", !r.allowed(v)
		}
	case DenyKeyword:
		words := make([]string, len(r.Value))
		for i, v := range r.Value {
			words[i] = folded(v)
		}
		c.eval = func(call *Call) (string, bool) {
			hit := call.params().anyText("", func(text any) bool { return containsAny(text, words) })
			return "the parameters contain a denied keyword", hit
		}
	case RateLimitTool:
		limit, every, err := parseRate(r.Value)
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrRule, r.Name, err)
		}
		c.rate = NewRateLimit(limit, every)
	case RequireState:
		c.eval = func(call *Call) (string, bool) {
			var got string
			if call.State != nil {
				got = call.State(r.Key)
			}
			if len(r.Value) == 0 {
				return "the required state is not set", got == ""
			}
			return "the run is not in a required state", !slices.Contains(r.Value, got)
		}
	}
	return c, nil
}

// document is the rule as in policy.json.
func (r *rule) document() schema.PolicyRule {
	d := schema.PolicyRule{
		Name: r.Name, Rule: r.Rule.Rule, Target: r.Target, Key: r.Key, Pattern: r.Pattern,
		Values: r.Value, Paths: r.ValuePath, Broken: r.broken, TNS: int64(r.added),
	}
	if r.rate != nil {
		d.Limit, d.WindowMS = int64(r.rate.limit), r.rate.every.Milliseconds()
	}
	return d
}

// check returns what makes a rule unusable.
func (r *Rule) check() error {
	needs := func(what string, ok bool) error {
		if ok {
			return nil
		}
		return fmt.Errorf("%s needs %s", r.Rule, what)
	}
	var errs []error
	if r.Name == "" || len(r.Name) > MaxName {
		errs = append(errs, fmt.Errorf("a rule needs a name of 1 to %d bytes", MaxName))
	}
	if !slices.Contains(kinds, r.Rule) {
		return errors.Join(append(errs,
			fmt.Errorf("unknown rule %.100q; the rules are %s", r.Rule, strings.Join(kinds, ", ")))...)
	}
	if r.Rule != DenyKeyword {
		errs = append(errs, needs("a target: a tool's name or \"*\"", r.Target != ""))
	}
	switch r.Rule {
	case DenyToolParam:
		errs = append(errs, needs("a key", r.Key != ""),
			needs("a value, a value_path or a pattern", len(r.Value)+len(r.ValuePath)+len(r.Pattern) > 0))
	case AllowToolParam:
		errs = append(errs, needs("a key", r.Key != ""),
			needs("a value or a value_path", len(r.Value)+len(r.ValuePath) > 0))
	case DenyToolParamMatching:
		errs = append(errs, needs("a key", r.Key != ""), needs("a pattern", r.Pattern != ""))
	case DenyKeyword:
		errs = append(errs, needs("a value", len(r.Value) > 0))
	case RequireState:
		errs = append(errs, needs("a key", r.Key != ""))
	}
	if r.Rule == DenyToolParam || r.Rule == DenyKeyword {
		errs = append(errs, needs("values that are not empty", !slices.Contains(r.Value, "")))
	}
	if r.Pattern != "" && r.Rule != DenyToolParamMatching && r.Rule != DenyToolParam {
		errs = append(errs, fmt.Errorf("%s does not use pattern", r.Rule))
	}
	if len(r.ValuePath) > 0 && r.Rule != DenyToolParam && r.Rule != AllowToolParam {
		errs = append(errs, fmt.Errorf("%s does not use value_path", r.Rule))
	}
	if slices.ContainsFunc(r.ValuePath, func(p string) bool { return !path.IsAbs(p) }) {
		errs = append(errs, errors.New("a value_path must be an absolute path"))
	}
	if r.Rule == DenyToolParam && len(r.Pattern) > maxPattern {
		errs = append(errs, fmt.Errorf("a pattern must have at most %d bytes", maxPattern))
	}
	if r.Rule == DenyTool && (r.Key != "" || len(r.Value) > 0) {
		errs = append(errs, fmt.Errorf("%s does not use key or value", r.Rule))
	}
	if len(r.Value)+len(r.ValuePath) > maxValues ||
		slices.ContainsFunc(slices.Concat(r.Value, r.ValuePath), func(v string) bool {
			return len(v) > maxValue
		}) {
		errs = append(errs, fmt.Errorf("a rule must have at most %d values of %d bytes each", maxValues, maxValue))
	}
	if len(r.Target) > MaxName || len(r.Key) > MaxName {
		errs = append(errs, fmt.Errorf("target and key must have at most %d bytes", MaxName))
	}
	return errors.Join(errs...)
}

// denied returns how a deny_tool_param matches a text: it equals a value, contains the pattern, or is a path at or
// below one of the rule's.
func (r Rule) denied() func(text any) bool {
	values := make([]string, len(r.Value))
	for i, v := range r.Value {
		values[i] = folded(v)
	}
	var pattern []string
	if r.Pattern != "" {
		pattern = []string{folded(r.Pattern)}
	}
	return func(text any) bool {
		for i, v := range values {
			for _, form := range forms(text) {
				if folded(form) == v || sameNumber(form, r.Value[i]) {
					return true
				}
			}
		}
		path, _ := text.(string)
		return containsAny(text, pattern) || len(r.ValuePath) > 0 && (climbs(path) ||
			slices.ContainsFunc(r.ValuePath, func(dir string) bool {
				return below(path, dir) || below(composed(path), dir)
			}))
	}
}

// allowed reports whether an allow_tool_param lists a value: the same text, the same number, or a path at or below
// one of the rule's. Case matters, since texts that differ in case may mean different things.
func (r Rule) allowed(v any) bool {
	if text, ok := v.(string); ok {
		return slices.ContainsFunc(r.Value, func(w string) bool {
			return norm.NFC.String(text) == norm.NFC.String(w)
		}) ||
			slices.ContainsFunc(r.ValuePath, func(dir string) bool { return below(text, dir) })
	}
	text := string(v.(literal))
	return slices.ContainsFunc(r.Value, func(w string) bool { return text == w || sameNumber(text, w) })
}

// containsAny reports whether a text contains one of the words, which are folded.
func containsAny(text any, words []string) bool {
	for _, form := range forms(text) {
		s := folded(form)
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) }) {
			return true
		}
	}
	return false
}

// compilePattern limits the work of a match, which is linear in the text's size times the program's size.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(pattern), maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the pattern is not valid RE2: %w", err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, fmt.Errorf("the pattern cannot be compiled: %w", err)
	}
	if len(prog.Inst) > maxProgram {
		return nil, fmt.Errorf("the pattern compiles to %d instructions, at most %d are allowed: use "+
			"smaller repeat counts", len(prog.Inst), maxProgram)
	}
	return regexp.Compile(pattern)
}

// covers reports whether a rule applies to a tool. No rule allows anything, so it also applies to names that a server
// may confuse with its target.
func (r *rule) covers(tool string) bool {
	return r.target == Alike(tool) || r.Target == anyTool || r.Target == "" && r.Rule.Rule == DenyKeyword
}

// check1 evaluates one rule. A rule that panics is violated.
func (r *rule) check1(c *Call) (v Violation, violated bool) {
	v = Violation{Rule: r.Name, Kind: r.Rule.Rule}
	if r.Rule.Rule != RequireState {
		v.Param = r.Key
	}
	defer func() {
		if recover() != nil {
			v.Reason, violated = "the rule could not be evaluated", true
		}
	}()
	v.Reason, violated = r.eval(c)
	return v, violated
}
