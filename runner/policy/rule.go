package policy

import (
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// anyTool is the target for every tool.
const anyTool = "*"

// rule is a Rule that is ready to be evaluated. eval returns how a call violates it; it may panic.
type rule struct {
	policyfile.Rule
	target string   // in the form of Alike
	dirs   []string // ValuePath, clean
	eval   func(c *Call) (reason string, violated bool)
	rate   *RateLimit
	broken string
	added  time.Duration // when a client added it, on the run's clock
}

// compile checks r. A pattern that cannot be used makes a rule that denies every call of its target. Every other
// fault is an error.
func compile(r policyfile.Rule) (*rule, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	c := &rule{Rule: r, target: Alike(r.Target)}
	for _, dir := range r.ValuePath {
		c.dirs = append(c.dirs, path.Clean(dir))
	}
	switch r.Rule {
	case policyfile.DenyTool:
		c.eval = func(*Call) (string, bool) { return "the tool is denied", true }
	case policyfile.DenyToolParam:
		denied := c.denied()
		c.eval = func(call *Call) (string, bool) {
			return "the parameter has a denied value", call.params().anyText(r.Key, denied)
		}
	case policyfile.DenyToolParamMatching:
		re, err := policyfile.CompilePattern(r.Pattern)
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
	case policyfile.AllowToolParam:
		c.eval = func(call *Call) (string, bool) {
			v, ok := call.params().scalar(r.Key)
			switch {
			case !ok:
				return "the parameter is absent or is not a plain value", true
			case v == "":
				return "the parameter is empty", true
			}
			return "the parameter's value is not one of those allowed", !c.allowed(v)
		}
	case policyfile.DenyKeyword:
		words := make([]string, len(r.Value))
		for i, v := range r.Value {
			words[i] = folded(v)
		}
		c.eval = func(call *Call) (string, bool) {
			hit := call.params().anyText("", func(text any) bool { return containsAny(text, words) })
			return "the parameters contain a denied keyword", hit
		}
	case policyfile.RateLimitTool:
		limit, every, _ := r.Rate() // Check has parsed it
		c.rate = NewRateLimit(limit, every)
	case policyfile.RequireState:
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

// denied returns how a deny_tool_param matches a text: it equals a value, contains the pattern, or is a path at or
// below one of the rule's.
func (r *rule) denied() func(text any) bool {
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
			r.holds(path) || r.holds(composed(path)))
	}
}

// allowed reports whether an allow_tool_param lists a value: the same text, the same number, or a path at or below
// one of the rule's. Case matters, since texts that differ in case may mean different things.
func (r *rule) allowed(v any) bool {
	if text, ok := v.(string); ok {
		return slices.ContainsFunc(r.Value, func(w string) bool {
			return norm.NFC.String(text) == norm.NFC.String(w)
		}) ||
			r.holds(text)
	}
	text := string(v.(literal))
	return slices.ContainsFunc(r.Value, func(w string) bool { return text == w || sameNumber(text, w) })
}

// holds reports whether a text is an absolute path, or the file URL of one, at or below one of the rule's. Links and
// mounts are not known here.
func (r *rule) holds(text string) bool {
	text = strings.TrimPrefix(text, "file://")
	return path.IsAbs(text) && schema.Below(path.Clean(text), r.dirs...)
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

// covers reports whether a rule applies to a tool. No rule allows anything, so it also applies to names that a server
// may confuse with its target.
func (r *rule) covers(tool string) bool {
	return r.target == Alike(tool) || r.Target == anyTool || r.Target == "" && r.Rule.Rule == policyfile.DenyKeyword
}

// check1 evaluates one rule. A rule that panics is violated.
func (r *rule) check1(c *Call) (v Violation, violated bool) {
	v = Violation{Rule: r.Name, Kind: r.Rule.Rule}
	if r.Rule.Rule != policyfile.RequireState {
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
