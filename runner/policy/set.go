package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// Names of the rules that stand for a file's lists of tools.
const (
	AllowList = "tools.allow"
	DenyList  = "tools.deny"
)

// MaxRules bounds the rules of a set.
const MaxRules = 1024

// Call is a tool call to be decided. It is for one goroutine.
type Call struct {
	Tool string
	// Params is a valid JSON value without duplicate keys; empty means none.
	Params []byte
	// State tells the run's state by key, "" where there is none. Nil has none.
	State func(key string) string
	// Now is the time on the run's clock, which rate limits count by.
	Now time.Duration
	// DryRun decides without counting the call against a rate limit.
	DryRun bool

	parsed *params
}

// Violation is one reason why a call may not be made.
type Violation struct {
	Rule string `json:"rule"` // its name
	Kind string `json:"kind"`
	// Param is the parameter that the rule looked at, where it looks at one.
	Param string `json:"param,omitempty"`
	// Reason is fit to be shown: it never quotes a parameter's value.
	Reason string `json:"reason"`
	// RetryAfter is when a rate limit has room again; 0 when that is unknown.
	RetryAfter time.Duration `json:"-"`
}

// Set is a policy in force. All methods are safe for concurrent use.
type Set struct {
	file  *File
	tools names
	rates *Rates // of the rules that clients add; nil: their own

	mu    sync.Mutex // one Add at a time
	rules atomic.Pointer[[]*rule]
}

// NewSet puts a file in force. A nil file forbids nothing.
func NewSet(f *File) *Set {
	if f == nil {
		f = &File{}
	}
	s := &Set{file: f, tools: newNames(f.Tools, false)}
	rules := make([]*rule, len(f.compiled))
	for i, r := range f.compiled {
		// Rate limits count for each set.
		own := *r
		if own.rate != nil {
			own.rate = NewRateLimit(own.rate.limit, own.rate.every)
		}
		rules[i] = &own
	}
	s.rules.Store(&rules)
	return s
}

// Add puts a client's rule in force at time now. The name must be new. The
// error is ErrRule.
func (s *Set) Add(r Rule, now time.Duration) error {
	c, err := compile(r)
	if err != nil {
		return err
	}
	c.added = now
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.rules.Load()
	if len(old) >= MaxRules {
		return fmt.Errorf("%w %q: there are already %d rules, which is the limit", ErrRule, r.Name, MaxRules)
	}
	if r.Name == AllowList || r.Name == DenyList || strings.HasPrefix(r.Name, "gateway.") ||
		slices.ContainsFunc(old, func(o *rule) bool { return o.Name == r.Name }) {
		return fmt.Errorf("%w %q: the name is already used, and a rule is never replaced", ErrRule, r.Name)
	}
	s.share(c)
	rules := append(slices.Clip(old), c)
	s.rules.Store(&rules)
	return nil
}

// Forbidden tells whether a tool may not be called whatever its parameters.
func (s *Set) Forbidden(tool string) bool {
	if len(s.listed(tool)) > 0 {
		return true
	}
	return slices.ContainsFunc(*s.rules.Load(), func(r *rule) bool { return r.Rule.Rule == DenyTool && r.covers(tool) })
}

// Decides tells whether the set has anything to decide calls of tools by.
func (s *Set) Decides() bool {
	t := s.file.Tools
	return t.Allow != nil || len(t.Deny) > 0 || s.file.Capabilities != nil || len(*s.rules.Load()) > 0
}

// Granted tells whether a tool may be given a capability.
func (s *Set) Granted(capability string) bool {
	return s.file.Capabilities == nil || slices.Contains(*s.file.Capabilities, capability)
}

// Check decides a call: no violation means that it may be made, and only then
// does it count against the rate limits.
func (s *Set) Check(c *Call) []Violation {
	return s.check(c, s.listed(c.Tool), func(r *rule) bool { return r.covers(c.Tool) })
}

// CheckNamed is Check by what names the call's tool: the list of denied tools and the
// rules for it. The list of allowed tools and rules for every tool say nothing of it.
func (s *Set) CheckNamed(c *Call) []Violation {
	var listed []Violation
	if s.tools.denies(c.Tool) {
		listed = s.listed(c.Tool)
	}
	return s.check(c, listed, func(r *rule) bool { return r.target == Alike(c.Tool) })
}

// check adds to what was found what the rules that cover a call find.
func (s *Set) check(c *Call, found []Violation, covers func(*rule) bool) []Violation {
	rules := *s.rules.Load()
	for _, r := range rules {
		if r.rate == nil && covers(r) {
			if v, violated := r.check1(c); violated {
				found = append(found, v)
			}
		}
	}
	var taken []*RateLimit
	for _, r := range rules {
		if r.rate == nil || !covers(r) {
			continue
		}
		// A call that is denied anyway counts nowhere.
		dry := c.DryRun || len(found) > 0
		wait, ok := r.rate.Take(c.Now, dry)
		switch {
		case !ok:
			found = append(found, Violation{Rule: r.Name, Kind: r.Rule.Rule, Reason: "the tool was called too often",
				RetryAfter: wait})
		case !dry:
			taken = append(taken, r.rate)
		}
	}
	if len(found) > 0 {
		for _, w := range taken {
			w.untake()
		}
	}
	return found
}

// listed applies the lists of tools. Deny wins over allow.
func (s *Set) listed(tool string) []Violation {
	switch s.tools.decide(tool) {
	case DenyList:
		return []Violation{{Rule: DenyList, Kind: DenyTool, Reason: "the tool is on the list of denied tools"}}
	case AllowList:
		return []Violation{{Rule: AllowList, Kind: DenyTool, Reason: "the tool is not on the list of allowed tools"}}
	}
	return nil
}

// covers reports whether a rule is about a tool. No rule allows anything, so it is also about the names that a server
// may take for its target.
func (r *rule) covers(tool string) bool {
	return r.target == Alike(tool) || r.Target == AnyTool || r.Target == "" && r.Rule.Rule == DenyKeyword
}

// check1 evaluates one rule. One that panics is violated.
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

// Document is the policy in force as policy.json has it, and whether there is
// anything to tell.
func (s *Set) Document(runID string) (schema.Policy, bool) {
	d := schema.Policy{
		Schema: schema.PolicyV0, RunID: runID, Version: 1,
		Rules: []schema.PolicyRule{}, ClientRules: []schema.PolicyRule{},
	}
	if s.file.Digest != "" {
		d.Digest = &s.file.Digest
	}
	d.Tools = *s.file.Tools.document()
	for kind, at := range map[Kind]**schema.PolicyTools{Resources: &d.Resources, Prompts: &d.Prompts,
		ServerRequests: &d.ServerRequests} {
		if s.Lists(kind) {
			*at = s.list(kind).document()
		}
	}
	if s.file.Capabilities != nil {
		d.Capabilities = append([]string{}, *s.file.Capabilities...)
	}
	for i, r := range *s.rules.Load() {
		if i < len(s.file.compiled) {
			d.Rules = append(d.Rules, r.document())
		} else {
			d.ClientRules = append(d.ClientRules, r.document())
		}
	}
	d.Sandbox = s.file.Effective
	return d, s.file.Digest != "" || s.file.Effective != nil || len(d.ClientRules) > 0
}

func (t Tools) document() *schema.PolicyTools {
	d := &schema.PolicyTools{Deny: append([]string{}, t.Deny...)}
	if t.Allow != nil {
		d.Allow = append([]string{}, *t.Allow...)
	}
	return d
}
