package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// startupFiles are what shells run when they start, below the home directory:
// who writes them is run later, outside of the sandbox.
var startupFiles = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout",
	".kshrc", ".cshrc", ".tcshrc", ".login", ".config/fish/config.fish", ".ssh/authorized_keys", ".ssh/config", ".gitconfig",
}

// searchDepth is how deep repositories are looked for below the working
// directory where the settings do not say, and searchEntries how many entries of directories are looked at.
const (
	searchDepth   = 3
	searchEntries = 20_000
)

// protect adds what nobody meant to allow by allowing the directory it is in.
func (p *Profile) protect(s *Settings, f *Filesystem, c Context) error {
	if p.Mode != WorkspaceWrite {
		return nil
	}
	named := map[string]bool{}
	for _, path := range f.AllowWrite {
		if at, err := absolute(path, c); err == nil {
			named[at] = true
		}
	}
	add := func(path string) {
		if named[path] || s.gitConfig && strings.HasSuffix(path, "/.git/config") {
			return
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && p.writable(dir) {
				p.startFiles = append(p.startFiles, Path{path, "protected"})
			}
			return
		}
		if p.writable(real) {
			p.DenyWrite = append(p.DenyWrite, Path{real, "protected"})
		}
		if real != path && p.swappable(path) {
			p.startFiles = append(p.startFiles, Path{path, "protected"}) // it may be replaced, which shows
		}
	}
	for _, path := range c.Protect {
		add(path)
	}
	if c.Home != "" {
		for _, name := range startupFiles {
			add(filepath.Join(c.Home, name))
		}
	}
	for _, git := range repositories(c.Dir, p.depth) {
		add(filepath.Join(git, "hooks"))
		add(filepath.Join(git, "config"))
	}
	slices.SortFunc(p.DenyWrite, func(a, b Path) int { return strings.Compare(a.Path, b.Path) })
	p.DenyWrite = slices.CompactFunc(p.DenyWrite, func(a, b Path) bool { return a.Path == b.Path })
	return nil
}

// repositories are the git directories in dir and a little below it.
func repositories(dir string, depth int) []string {
	var found []string
	seen := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if seen++; seen > searchEntries {
			return filepath.SkipAll
		}
		if err != nil || !d.IsDir() {
			return nil
		}
		switch d.Name() {
		case ".git":
			found = append(found, path)
			modules, _ := filepath.Glob(filepath.Join(path, "modules", "*", "config"))
			for _, m := range modules {
				found = append(found, filepath.Dir(m))
			}
			return filepath.SkipDir
		case "node_modules":
			return filepath.SkipDir
		}
		if rel, err := filepath.Rel(dir, path); err == nil && rel != "." && strings.Count(rel, "/")+1 > depth {
			return filepath.SkipDir
		}
		return nil
	})
	return found
}

// Appeared are files that only outsiders run or read at their start, which did
// not exist when the profile was made and do now: a sandbox cannot protect a
// name without creating it.
func (p *Profile) Appeared() []Path {
	var found []Path
	for _, f := range p.startFiles {
		if _, err := os.Lstat(f.Path); err == nil {
			found = append(found, f)
		}
	}
	for _, git := range repositories(p.Dir, p.depth) {
		hooks, _ := filepath.Glob(filepath.Join(git, "hooks", "*"))
		if slices.ContainsFunc(p.DenyWrite, func(d Path) bool { return d.Path == filepath.Join(git, "hooks") }) {
			continue
		}
		for _, h := range hooks {
			if info, err := os.Stat(h); err == nil && info.Mode()&0o111 != 0 && !strings.HasSuffix(h, ".sample") {
				found = append(found, Path{h, "protected"})
			}
		}
	}
	return found
}
