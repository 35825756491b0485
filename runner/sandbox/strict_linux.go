package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// freshen covers the directories for temporary files by empty ones. Of what they had,
// the working directory is still seen, with what it is in, and the fresh directory.
func (p *Profile) freshen(m *shim.Mounts) {
	if p.fresh == "" {
		return
	}
	var covered []string
	for _, dir := range Temporary {
		real, err := filepath.EvalSymlinks(dir)
		if info, serr := os.Stat(real); err != nil || serr != nil || !info.IsDir() || real == p.Dir || Below(real, "/dev") && m.Devices {
			continue
		}
		covered = append(covered, real)
	}
	within := func(path string) bool {
		return slices.ContainsFunc(covered, func(dir string) bool { return Below(path, dir) })
	}
	seen := []string{p.fresh}
	for _, dir := range covered {
		rest, in := strings.CutPrefix(p.Dir, dir+"/")
		if !in {
			continue
		}
		top, _, _ := strings.Cut(rest, "/")
		if at := filepath.Join(dir, top); m.All || p.writable(p.Dir) {
			seen = append(seen, at)
		} else {
			m.Shown = append(m.Shown, shim.Shown{Path: at})
		}
	}
	for _, w := range p.Write { // what a policy names, which Landlock needs to find
		if within(w.Path) && !slices.Contains(covered, w.Path) {
			seen = append(seen, w.Path)
		}
	}
	gone := func(path string) bool {
		return within(path) && !slices.ContainsFunc(append(slices.Clone(seen), shownPaths(m)...), func(s string) bool { return Below(path, s) })
	}
	m.Writable = slices.DeleteFunc(m.Writable, within)
	for _, list := range []*[]string{&m.Pinned, &m.ReadOnly, &m.Hidden, &m.Sockets} {
		*list = slices.DeleteFunc(*list, gone)
	}
	m.Temporary = outermost(append(m.Temporary, covered...))
	m.Writable = append(m.Writable, outermost(seen)...)
}

func shownPaths(m *shim.Mounts) []string {
	var paths []string
	for _, s := range m.Shown {
		paths = append(paths, s.Path)
	}
	return paths
}
