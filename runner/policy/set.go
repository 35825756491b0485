package policy

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// Call is a tool call to decide. It is for one goroutine.
type Call struct {
	Tool string
	// Params is a valid JSON value without duplicate keys; empty means none.
	Params []byte
	// State returns the run's state by key, "" if there is none. It may be nil.
	State func(key string) string
	// Now is the time on the run's clock, for rate limits.
	Now time.Duration
	// DryRun decides without counting the call against a rate limit.
	DryRun bool

	parsed *params
}

// Violation is a reason why a call is denied.
type Violation struct {
	Rule string `json:"rule"` // its name
	Kind string `json:"kind"`
	// Param is the parameter that the rule checked, if any.
	Param string `json:"param,omitempty"`
	// Reason can be shown: it never quotes a parameter's value.
	Reason string `json:"reason"`
	// RetryAfter is when a rate limit allows a call again; 0: unknown.
	RetryAfter time.Duration `json:"-"`
}

// Set is a policy in force. All methods are safe for concurrent use.
type Set struct {
	file  *policyfile.File
	tools names
	rates *Rates // for rules that clients add; nil: each has its own

	mu    sync.Mutex // for one Add at a time
	rules atomic.Pointer[[]*rule]
}

// NewSet puts a file in force. A nil file forbids nothing.
func NewSet(f *policyfile.File) *Set {
	if f == nil {
		f = &policyfile.File{}
	}
	s := &Set{file: f, tools: newNames(f.Tools, false)}
	rules := make([]*rule, 0, len(f.Rules))
	for _, r := range f.Rules {
		if c, err := compile(r); err == nil { // the file's reader has checked it
			rules = append(rules, c)
		}
	}
	s.rules.Store(&rules)
	return s
}

// Add puts a client's rule in force at time now. The name must be new. The error wraps [policyfile.ErrRule].
func (s *Set) Add(r policyfile.Rule, now time.Duration) error {
	c, err := compile(r)
	if err != nil {
		return err
	}
	c.added = now
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.rules.Load()
	if len(old) >= policyfile.MaxRules {
		return fmt.Errorf("%w %q: there are already %d rules, which is the limit", policyfile.ErrRule, r.Name,
			policyfile.MaxRules)
	}
	if policyfile.Reserved(r.Name) ||
		slices.ContainsFunc(old, func(o *rule) bool { return o.Name == r.Name }) {
		return fmt.Errorf("%w %q: the name is already used, and a rule is never replaced", policyfile.ErrRule, r.Name)
	}
	s.share(c)
	rules := append(slices.Clip(old), c)
	s.rules.Store(&rules)
	return nil
}

// Forbidden reports whether a tool is denied whatever its parameters.
func (s *Set) Forbidden(tool string) bool {
	if len(s.listed(tool)) > 0 {
		return true
	}
	return slices.ContainsFunc(*s.rules.Load(), func(r *rule) bool {
		return r.Rule.Rule == policyfile.DenyTool &&
			r.covers(tool)
	})
}

// Decides reports whether the set has any rule or list for tools.
func (s *Set) Decides() bool {
	t := s.file.Tools
	return t.Allow != nil || len(t.Deny) > 0 || s.file.Capabilities != nil || len(*s.rules.Load()) > 0
}

// Granted reports whether a tool may get a capability.
func (s *Set) Granted(capability string) bool {
	return s.file.Capabilities == nil || slices.Contains(*s.file.Capabilities, capability)
}

// Check decides a call. Without a violation the call is allowed, and only then does it count against rate limits.
func (s *Set) Check(c *Call) []Violation {
	return s.check(c, s.listed(c.Tool), func(r *rule) bool { return r.covers(c.Tool) })
}

// CheckNamed is Check with only the rules that name the call's tool: the list of denied tools, and rules with that
// target. It ignores the list of allowed tools and rules for every tool.
func (s *Set) CheckNamed(c *Call) []Violation {
	var listed []Violation
	if s.tools.denies(c.Tool) {
		listed = s.listed(c.Tool)
	}
	return s.check(c, listed, func(r *rule) bool { return r.target == Alike(c.Tool) })
}

// check appends to found the violations of the rules that cover the call.
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
		// A call that is denied anyway counts against no limit.
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

// listed applies the lists of tools. Deny takes precedence.
func (s *Set) listed(tool string) []Violation {
	switch s.tools.decide(tool) {
	case policyfile.DenyList:
		return []Violation{{Rule: policyfile.DenyList, Kind: policyfile.DenyTool,
			Reason: "the tool is on the list of denied tools"}}
	case policyfile.AllowList:
		return []Violation{{Rule: policyfile.AllowList, Kind: policyfile.DenyTool,
			Reason: "the tool is not on the list of allowed tools"}}
	}
	return nil
}

// Document returns the policy in force as in policy.json, and whether there is one.
func (s *Set) Document(runID string) (schema.Policy, bool) {
	d := schema.Policy{
		Schema: schema.PolicyV0, RunID: runID, Version: 1,
		Rules: []schema.PolicyRule{}, ClientRules: []schema.PolicyRule{},
	}
	if s.file.Digest != "" {
		d.Digest = &s.file.Digest
	}
	d.Tools = *documented(s.file.Tools)
	for kind, at := range map[Kind]**schema.PolicyTools{Resources: &d.Resources, Prompts: &d.Prompts,
		ServerRequests: &d.ServerRequests} {
		if s.Lists(kind) {
			*at = documented(s.list(kind))
		}
	}
	if s.file.Capabilities != nil {
		d.Capabilities = append([]string{}, *s.file.Capabilities...)
	}
	for i, r := range *s.rules.Load() {
		if i < len(s.file.Rules) {
			d.Rules = append(d.Rules, r.document())
		} else {
			d.ClientRules = append(d.ClientRules, r.document())
		}
	}
	if m := s.file.Model; m.ProviderTools != "" {
		d.Model = &schema.PolicyModel{ProviderTools: m.ProviderTools}
	}
	d.Sandbox = s.file.Effective
	return d, s.file.Digest != "" || s.file.Effective != nil || len(d.ClientRules) > 0
}

// documented is a list as in policy.json.
func documented(t policyfile.Tools) *schema.PolicyTools {
	d := &schema.PolicyTools{Deny: append([]string{}, t.Deny...)}
	if t.Allow != nil {
		d.Allow = append([]string{}, *t.Allow...)
	}
	return d
}

// Explanation says whether a call may be made, and why.
type Explanation struct {
	Tool     string `json:"tool"`
	Decision string `json:"decision"`       // "allow" or "deny"
	Rule     string `json:"rule,omitempty"` // the first rule that denies, which the answer to the call names
	// Rulings are those of all rules that cover the call, in order of evaluation.
	Rulings []Ruling `json:"rulings"`
}

// Ruling is the result of one rule, or of a list of tools, for a call.
type Ruling struct {
	Rule     string `json:"rule"` // its name
	Kind     string `json:"kind"`
	Decision string `json:"decision"` // "allow" or "deny"
	Param    string `json:"param,omitempty"`
	// Reason can be shown: it never quotes a parameter's value.
	Reason string `json:"reason,omitempty"`
}

// Explain decides a call as [Set.Check] does, and says what each rule that covers it contributes. The call counts
// against no rate limit, and is decided as if it were the first.
func (s *Set) Explain(c *Call) Explanation {
	e := Explanation{Tool: c.Tool, Decision: "allow", Rulings: []Ruling{}}
	add := func(r Ruling, denies bool) {
		r.Decision = "allow"
		if denies {
			r.Decision, e.Decision = "deny", "deny"
			if e.Rule == "" {
				e.Rule = r.Rule
			}
		}
		e.Rulings = append(e.Rulings, r)
	}
	listed := s.listed(c.Tool)
	for _, v := range listed {
		add(Ruling{Rule: v.Rule, Kind: v.Kind, Reason: v.Reason}, true)
	}
	if len(listed) == 0 && s.tools.limited {
		add(Ruling{Rule: policyfile.AllowList, Kind: policyfile.DenyTool,
			Reason: "the tool is on the list of allowed tools"}, false)
	}
	var limits []*rule
	for _, r := range *s.rules.Load() {
		switch {
		case !r.covers(c.Tool):
		case r.rate != nil:
			limits = append(limits, r)
		default:
			v, denies := r.check1(c)
			if !denies {
				v.Reason = ""
			}
			add(Ruling{Rule: v.Rule, Kind: v.Kind, Param: v.Param, Reason: v.Reason}, denies)
		}
	}
	for _, r := range limits {
		calls, every := r.rate.Limit()
		add(Ruling{Rule: r.Name, Kind: r.Rule.Rule, Reason: fmt.Sprintf("at most %d calls in %v", calls, every)},
			calls == 0)
	}
	return e
}

// Kind says what a list of names contains.
type Kind string

// Kinds of names other than tools.
const (
	Resources      Kind = "resources"       // URIs of MCP resources
	Prompts        Kind = "prompts"         // names of MCP prompts
	ServerRequests Kind = "server_requests" // requests of an MCP server to its client, by method
)

// names is a list of allowed and denied names and globs. Denied ones are in the form of [Alike] unless exact; allowed
// ones must match exactly.
type names struct {
	exact       bool
	deny, allow map[string]bool
	denyGlobs   []string
	allowGlobs  []string
	limited     bool // there is a list of allowed names
}

func newNames(t policyfile.Tools, exact bool) (n names) {
	n.exact = exact
	deny := make([]string, len(t.Deny))
	for i, name := range t.Deny {
		deny[i] = n.form(name)
	}
	n.deny, n.denyGlobs = splitGlobs(deny)
	if n.limited = t.Allow != nil; n.limited {
		n.allow, n.allowGlobs = splitGlobs(*t.Allow)
	}
	return n
}

func splitGlobs(list []string) (names map[string]bool, globs []string) {
	names = make(map[string]bool, len(list))
	for _, name := range list {
		if names[name] = true; strings.ContainsAny(name, "*?[{\\") {
			globs = append(globs, name)
		}
	}
	return names, globs
}

// form returns a name or glob in the form of the denied list.
func (n *names) form(name string) string {
	if n.exact {
		return name
	}
	return Alike(name)
}

// denies reports whether the denied list has this very name, not only a matching glob.
func (n *names) denies(name string) bool { return n.deny[n.form(name)] }

// decide returns the list that forbids a name: DenyList, AllowList or "". Deny takes precedence.
func (n *names) decide(name string) string {
	in := func(name string, names map[string]bool, globs []string) bool {
		matches := func(glob string) bool { return doublestar.MatchUnvalidated(glob, name) }
		return names[name] || names[anyTool] || slices.ContainsFunc(globs, matches)
	}
	switch {
	case in(n.form(name), n.deny, n.denyGlobs):
		return policyfile.DenyList
	case n.limited && !in(name, n.allow, n.allowGlobs):
		return policyfile.AllowList
	}
	return ""
}

func (s *Set) list(kind Kind) policyfile.Tools {
	switch kind {
	case Resources:
		return s.file.Resources
	case Prompts:
		return s.file.Prompts
	}
	return s.file.ServerRequests
}

// Lists reports whether the policy has a list of this kind.
func (s *Set) Lists(kind Kind) bool {
	l := s.list(kind)
	return l.Allow != nil || len(l.Deny) > 0
}

// CheckName decides about a name that is not a tool's. A resource's URI is checked as written and as resolved, and
// both must be allowed.
func (s *Set) CheckName(kind Kind, name string) []Violation {
	n := newNames(s.list(kind), kind == Resources) // case matters in a URI
	forms := []string{name}
	if kind == Resources {
		forms = append(forms, resolved(name))
	}
	for _, form := range forms {
		switch n.decide(form) {
		case policyfile.DenyList:
			return []Violation{{Rule: string(kind) + ".deny", Kind: policyfile.DenyTool,
				Reason: "it is on the list of what is denied"}}
		case policyfile.AllowList:
			return []Violation{{Rule: string(kind) + ".allow", Kind: policyfile.DenyTool,
				Reason: "it is not on the list of what is allowed"}}
		}
	}
	return nil
}

// resolved returns a URI with scheme and host in lower case and a path without escapes, "." and "..".
func resolved(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Path == "" {
		return uri
	}
	rest := ""
	if i := strings.IndexAny(uri, "?#"); i >= 0 {
		rest = uri[i:]
	}
	return strings.ToLower(u.Scheme) + "://" + strings.ToLower(u.Host) + path.Clean(u.Path) + rest
}

// maxRates limits the shared rate limits.
const maxRates = 4096

// Rates are rate limits, by name, that several sets share. They are safe for concurrent use.
type Rates struct {
	note   func(limit string, every time.Duration, undo bool)
	mu     sync.Mutex
	limits map[string]*RateLimit
	before func(limit string) []time.Duration
}

// NewRates makes Rates without limits. A new limit starts with the earlier calls that before returns, in order, and
// calls note for each call that it counts or stops counting.
func NewRates(before func(limit string) []time.Duration,
	note func(limit string, every time.Duration, undo bool)) *Rates {
	return &Rates{note: note, limits: map[string]*RateLimit{}, before: before}
}

// Of returns the limit of a name. A different count or window makes a different limit.
func (r *Rates) Of(name string, limit int, every time.Duration) *RateLimit {
	key := fmt.Sprintf("%d/%d %s", limit, every, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.limits[key]; l != nil {
		return l
	}
	l := NewRateLimit(limit, every)
	if len(r.limits) < maxRates {
		r.limits[key] = l
		l.times = r.before(key)
		l.note = func(undo bool) { r.note(key, every, undo) }
	}
	return l
}

// Shared returns a set with the same rules that uses the rate limits of rates.
func (s *Set) Shared(rates *Rates) *Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := &Set{file: s.file, tools: s.tools, rates: rates}
	rules := make([]*rule, len(*s.rules.Load()))
	for i, r := range *s.rules.Load() {
		own := *r
		shared.share(&own)
		rules[i] = &own
	}
	shared.rules.Store(&rules)
	return shared
}

// share replaces a rule's limit by a shared one.
func (s *Set) share(r *rule) {
	if s.rates != nil && r.rate != nil {
		r.rate = s.rates.Of("rule "+r.Name+" "+r.Target, r.rate.limit, r.rate.every)
	}
}

func (c *Call) params() *params {
	if c.parsed == nil {
		c.parsed = &params{}
		if len(c.Params) > 0 {
			var root any
			if err := json.Unmarshal(c.Params, &root, literals()); err != nil {
				// Callers pass valid JSON. A panic denies the call.
				panic("policy: parameters are not valid JSON")
			}
			c.parsed.root = root
		}
	}
	return c.parsed
}
