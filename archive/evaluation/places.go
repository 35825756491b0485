package evaluation

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

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
	deliverable
)

// asked are the places of what the agent is to change.
const asked = workspace | deliverable

// places knows which files the evaluation file names.
type places struct {
	globs  map[kinds][]glob
	all    []placed    // the same globs in one list
	recent [8]struct { // the last paths that were asked for
		path   string
		inside bool
		of     kinds
	}
	next    int // in recent
	facts   *facts.Reader
	renamed bool     // something that the evaluation file names has another name, too
	mounted bool     // something was mounted
	stale   bool     // the line that is judged changes names
	foreign bool     // the agent works in the run's container, and the names are those there
	inside  bool     // the line that is judged is of that container
	roots   []string // directories that the run's command or a check made its root
}

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
	absent  bool   // it could match nothing when the run started
	inside  bool   // it only matches in a container
	host    bool   // without inside: it also matches on the host if the agent works in a container
}

func newGlob(pattern string) glob {
	if file, exact := schema.UnescapeGlob(pattern); exact {
		return glob{pattern: pattern, literal: file, exact: true}
	}
	g := glob{pattern: pattern, literal: pattern, exact: true}
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		g.literal, g.exact = pattern[:strings.LastIndexByte(pattern[:i], '/')+1], false
	}
	return g
}

// String is the glob as the evaluation file has it, but for links.
func (g glob) String() string {
	if g.inside {
		return schema.InContainer + g.pattern
	}
	return g.pattern
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

// newPlaces makes the places of a run that starts in workdir. start says what the globs led to then; nil if that is not
// known.
func newPlaces(def *schema.EvaluationDefinition, workdir string, start *schema.EvaluationStart,
	files *facts.Reader) *places {
	n := &places{globs: map[kinds][]glob{}, facts: files}
	if start == nil {
		start = &schema.EvaluationStart{}
	}
	var tests []string
	for _, dir := range start.Tests {
		tests = append(tests, schema.EscapeGlob(dir))
	}
	if def.Tests != "" {
		tests = append(tests, schema.EscapeGlob(def.Tests))
	}
	n.foreign = def.InContainer(workdir, start)
	ofHost := slices.Concat(def.Watched, start.Protected, tests) // whatever the container has
	for kind, list := range map[kinds][]string{
		hidden: slices.Concat(def.Hidden, tests), others: def.Others, reward: def.Reward,
		protected: slices.Concat(def.Protected, def.Watched, start.Protected, tests),
		workspace: def.Roots(workdir), deliverable: def.Deliverables,
	} {
		for _, pattern := range def.Absolute(list, workdir) {
			file, inside := strings.CutPrefix(pattern, schema.InContainer)
			g := newGlob(file)
			g.inside, g.absent = inside, slices.Contains(start.Absent, pattern)
			g.host = !n.foreign || kind == others || slices.Contains(ofHost, pattern)
			if c := start.Container; c == nil {
				g.host = true
			} else {
				g.host = g.host || slices.Contains(c.Absent, pattern) && !g.absent
				g.absent = g.absent && slices.Contains(c.Absent, pattern)
				n.link(c.Links[pattern], kind, true)
			}
			n.add(g, kind)
			if g.host {
				n.link(start.Links[pattern], kind, false)
			}
		}
	}
	return n
}

func (n *places) add(g glob, kind kinds) {
	n.globs[kind] = append(n.globs[kind], g)
	n.all = append(n.all, placed{g, kind})
}

// link adds what a glob is without symbolic links in its name; empty for nothing else.
func (n *places) link(pattern string, kind kinds, inside bool) {
	if pattern != "" {
		g := newGlob(pattern)
		g.inside, g.host = inside, true
		n.add(g, kind)
	}
}

// absent returns the globs of a kind that could match nothing when the run started, and that no check's file matched
// since.
func (n *places) absent(kind kinds) (patterns []string) {
	for i := range n.all {
		if g := &n.all[i]; g.kind == kind && g.absent {
			patterns = append(patterns, g.String())
		}
	}
	return patterns
}

// met notes that a check used a file. If that is below a root that was entered, the names of the evaluation file are
// those there.
func (n *places) met(name string) {
	inner := n.inner(name)
	for i := range n.all {
		switch g := &n.all[i]; {
		case !g.absent:
		case inner != name && g.matches(inner):
			for i := range n.all {
				n.all[i].absent = false
			}
		case slices.ContainsFunc(n.names(name), g.matches):
			g.absent = false
		}
	}
}

// enter notes that the run's command or a check made a directory its root: the names of the evaluation file may be
// those below it.
func (n *places) enter(root string) {
	root = path.Clean(root)
	if path.IsAbs(root) && root != "/" && !slices.Contains(n.roots, root) && len(n.roots) < maxNames {
		n.roots, n.stale = append(n.roots, strings.Clone(root)), true
	}
}

// inner returns a name as it is below the root that was entered.
func (n *places) inner(name string) string {
	for _, root := range n.roots {
		if rest, ok := strings.CutPrefix(name, root); ok && (rest == "" || rest[0] == '/') {
			return path.Clean("/" + rest)
		}
	}
	return name
}

// of returns the kinds of a path, by its present and former names.
func (n *places) of(p string) kinds {
	for i := range n.recent {
		if n.recent[i].path == p && n.recent[i].inside == n.inside && p != "" {
			return n.recent[i].of
		}
	}
	k := n.any(p, glob.matches)
	r := &n.recent[n.next%len(n.recent)]
	r.path, r.inside, r.of = p, n.inside, k
	n.next++
	return k
}

// Deliverable reports whether an evaluation file names a path as a deliverable.
func Deliverable(e *schema.Evaluation, name string) bool {
	return newPlaces(&e.Evaluation, e.Workdir, e.Start, facts.NewReader(false)).of(name)&deliverable != 0
}

// listed reports whether the deliverables name something in a workspace: then nothing else there was asked for.
func (n *places) listed() bool {
	return slices.ContainsFunc(n.globs[deliverable], func(g glob) bool { return n.of(g.literal)&workspace != 0 })
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
	for i, name := range n.names(p) {
		var of kinds
		for i := range n.all {
			if g := &n.all[i]; of&g.kind == 0 && (n.inside || g.host && !g.inside) && fits(g.glob, name) {
				of |= g.kind
			}
		}
		if i == 0 || n.mounted || len(n.roots) > 0 || of&^asked != 0 {
			k |= of
		}
	}
	return k
}

// names returns a path, its other names, and those below the roots that were entered.
func (n *places) names(p string) []string {
	names := []string{p}
	if n.renamed {
		names = n.facts.Names(p)
	}
	for _, name := range names[:len(names):len(names)] {
		if inner := n.inner(name); inner != name {
			names = append(names, inner)
		}
	}
	return names
}

// follow has to be called before a line changes names that the evaluation file has.
func (n *places) follow() { n.renamed, n.stale = true, true }

// applied has to be called after each line.
func (n *places) applied() {
	if n.stale {
		clear(n.recent[:])
		n.stale = false
	}
}
