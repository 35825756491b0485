package policy

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Kind is what a list of names is about.
type Kind string

// Kinds of names beside tools.
const (
	Resources      Kind = "resources"       // URIs of MCP resources
	Prompts        Kind = "prompts"         // names of MCP prompts
	ServerRequests Kind = "server_requests" // methods that an MCP server asks of its client
)

// names are a list of allowed and denied names and globs, ready to be asked. What is denied is in the form of [Alike],
// unless exact; what is allowed must be the same.
type names struct {
	exact       bool
	deny, allow map[string]bool
	denyGlobs   []string
	allowGlobs  []string
	limited     bool // there is a list of what is allowed
}

func newNames(t Tools, exact bool) (n names) {
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

func splitGlobs(list []string) (plain map[string]bool, globs []string) {
	plain = make(map[string]bool, len(list))
	for _, name := range list {
		if plain[name] = true; strings.ContainsAny(name, "*?[{\\") {
			globs = append(globs, name)
		}
	}
	return plain, globs
}

// form is a name or glob as the list of what is denied has it.
func (n *names) form(name string) string {
	if n.exact {
		return name
	}
	return Alike(name)
}

// denies reports whether a name is on the list of what is denied by itself, and not by a glob.
func (n *names) denies(name string) bool { return n.deny[n.form(name)] }

// decide is the list that forbids a name: DenyList, AllowList or "". Deny wins
// over allow.
func (n *names) decide(name string) string {
	in := func(name string, plain map[string]bool, globs []string) bool {
		matches := func(glob string) bool { return doublestar.MatchUnvalidated(glob, name) }
		return plain[name] || plain[AnyTool] || slices.ContainsFunc(globs, matches)
	}
	switch {
	case in(n.form(name), n.deny, n.denyGlobs):
		return DenyList
	case n.limited && !in(name, n.allow, n.allowGlobs):
		return AllowList
	}
	return ""
}

func (s *Set) list(kind Kind) Tools {
	switch kind {
	case Resources:
		return s.file.Resources
	case Prompts:
		return s.file.Prompts
	}
	return s.file.ServerRequests
}

// Lists tells whether the policy says anything about names of a kind.
func (s *Set) Lists(kind Kind) bool {
	l := s.list(kind)
	return l.Allow != nil || len(l.Deny) > 0
}

// CheckName decides about a name that is not a tool's. A resource's URI is looked
// at as it is written and as it is resolved, and both must be allowed.
func (s *Set) CheckName(kind Kind, name string) []Violation {
	n := newNames(s.list(kind), kind == Resources) // the case of a URI can matter
	forms := []string{name}
	if kind == Resources {
		forms = append(forms, resolved(name))
	}
	for _, form := range forms {
		switch n.decide(form) {
		case DenyList:
			return []Violation{{Rule: string(kind) + ".deny", Kind: DenyTool,
				Reason: "it is on the list of what is denied"}}
		case AllowList:
			return []Violation{{Rule: string(kind) + ".allow", Kind: DenyTool,
				Reason: "it is not on the list of what is allowed"}}
		}
	}
	return nil
}

// resolved is a URI with scheme and host in lower case and a path without escapes,
// "." and "..".
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
