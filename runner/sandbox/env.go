package sandbox

import (
	"path"
	"slices"
	"strings"
)

// Apply returns the variables of an environment that pass, in their order, and
// then those that are set. A nil Env lets all of them pass.
func (e *Env) Apply(env []string) []string {
	if e == nil {
		return env
	}
	var kept []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if e.Pass != nil && !matches(*e.Pass, name) || matches(e.Drop, name) {
			continue
		}
		if _, set := e.Set[name]; !set {
			kept = append(kept, kv)
		}
	}
	var names []string
	for name := range e.Set {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		kept = append(kept, name+"="+e.Set[name])
	}
	return kept
}

// matches tells whether a name matches one of the patterns. A pattern that is not
// a valid glob matches its own text.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok || err != nil && p == name
	})
}

// lookup is a variable's last value.
func lookup(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
