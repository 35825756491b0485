package evaluation

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// kinds of places, as a set.
type kinds uint8

const (
	hidden kinds = 1 << iota
	others
	reward
	protected
	workspace
)

// places knows which files the evaluation file names.
type places struct {
	globs   map[kinds][]glob
	all     []placed         // the same globs in one list
	known   map[string]kinds // results for paths that were asked for
	facts   *facts.Reader
	renamed bool // something that the evaluation file names has another name, too
	mounted bool // something was mounted
	stale   bool // the line that is judged changes names
}

// maxKnown limits places.known.
const maxKnown = 1 << 16

// placed is a glob of a kind.
type placed struct {
	glob
	kind kinds
}

// glob matches paths and everything below them.
type glob struct {
	pattern string
	literal string // the path itself if exact; otherwise the directories before the first wildcard, with a slash
	exact   bool   // the pattern has no wildcard
}

func newGlob(pattern string) glob {
	g := glob{pattern: pattern, literal: pattern, exact: true}
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		g.literal, g.exact = pattern[:strings.LastIndexByte(pattern[:i], '/')+1], false
	}
	return g
}

func (g glob) matches(p string) bool {
	switch {
	case !strings.HasPrefix(p, g.literal):
		return false
	case g.exact:
		return len(p) == len(g.literal) || p[len(g.literal)] == '/' || g.literal == "/"
	}
	if ok, _ := doublestar.Match(g.pattern, p); ok { // the evaluation file's patterns are valid
		return true
	}
	ok, _ := doublestar.Match(g.pattern+"/**", p)
	return ok
}

// above reports whether the directory p contains all that the glob matches.
func (g glob) above(p string) bool {
	inside := strings.TrimSuffix(p, "/") + "/" // the root ends with its slash already
	return p != "" && strings.HasPrefix(g.literal, inside) && (g.literal != inside || !g.exact)
}

func newPlaces(def *schema.EvaluationDefinition, workdir string, files *facts.Reader) *places {
	n := &places{globs: map[kinds][]glob{}, known: map[string]kinds{}, facts: files}
	roots := def.Workspace
	if len(roots) == 0 && workdir != "" {
		roots = []string{view.EscapeGlob(path.Clean(workdir))}
	}
	for kind, list := range map[kinds][]string{
		hidden: def.Hidden, others: def.Others, reward: def.Reward, protected: def.Protected, workspace: roots,
	} {
		for _, pattern := range list {
			if path.IsAbs(pattern) {
				n.globs[kind] = append(n.globs[kind], newGlob(pattern))
				continue
			}
			for _, root := range roots {
				n.globs[kind] = append(n.globs[kind], newGlob(strings.TrimSuffix(root, "/")+"/"+pattern))
			}
		}
	}
	for kind, list := range n.globs { // a path without wildcards may be written with escapes
		for i, g := range list {
			if p := unescape(g.pattern); p != g.pattern && !strings.ContainsAny(p, `*?[{\`) {
				list[i] = glob{pattern: p, literal: p, exact: true}
			}
			n.all = append(n.all, placed{list[i], kind})
		}
	}
	return n
}

// unescape removes backslashes before ordinary characters. A pattern with an escaped wildcard is returned unchanged.
func unescape(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] == '\\' && i+1 < len(p) {
			i++
			if strings.IndexByte(`*?[{\`, p[i]) >= 0 {
				return p // the wildcard has to stay escaped
			}
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// of returns the kinds of a path, by its present and former names.
func (n *places) of(p string) kinds {
	if k, ok := n.known[p]; ok {
		return k
	}
	k := n.any(p, glob.matches)
	if len(n.known) < maxKnown {
		n.known[strings.Clone(p)] = k
	}
	return k
}

// root reports whether a path is a workspace.
func (n *places) root(p string) bool {
	return slices.ContainsFunc(n.globs[workspace], func(g glob) bool { return g.exact && g.literal == p })
}

// above returns the kinds of the globs that only match below the directory p.
func (n *places) above(p string) kinds { return n.any(p, glob.above) }

// any returns the kinds of the globs that fit one of the path's names. A former name that is in a workspace puts
// nothing into the workspace by itself.
func (n *places) any(p string, fits func(glob, string) bool) (k kinds) {
	names := []string{p}
	if n.renamed {
		names = n.facts.Names(p)
	}
	for i, name := range names {
		var of kinds
		for i := range n.all {
			if g := &n.all[i]; of&g.kind == 0 && fits(g.glob, name) {
				of |= g.kind
			}
		}
		if i == 0 || n.mounted || of != workspace {
			k |= of
		}
	}
	return k
}

// follow has to be called before a line changes names that the evaluation file has.
func (n *places) follow() { n.renamed, n.stale = true, true }

// next has to be called after each line.
func (n *places) next() {
	if n.stale {
		clear(n.known)
		n.stale = false
	}
}
