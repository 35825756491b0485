package startup

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// repository is a repository as git finds it.
type repository struct {
	worktree string // the directory with .git; empty for a repository that has none beside it
	dir      string // for this worktree
	common   string // for all of its worktrees
	whole    bool   // git takes it for one
	remoteOf string // where a repository is that names it as a remote; empty for others
}

// where names the repository in facts.
func (r *repository) where() string {
	if r.worktree != "" {
		return r.worktree
	}
	return r.dir
}

// marks are the names in a directory by which git takes it for a repository.
type marks struct{ head, objects, refs, commondir bool }

func (m *marks) add(name string) {
	switch name {
	case "HEAD":
		m.head = true
	case "objects":
		m.objects = true
	case "refs":
		m.refs = true
	case "commondir":
		m.commondir = true
	}
}

// repository reports whether git takes the directory for a repository (is_git_directory in git's setup.c).
func (m *marks) repository() bool { return m.head && (m.objects && m.refs || m.commondir) }

// resolve returns the repository that .git in a directory is or leads to, and the files that lead there.
func resolve(worktree string) (*repository, []string) {
	at := filepath.Join(worktree, ".git")
	var leads []string
	info, err := os.Lstat(at)
	if err != nil {
		return nil, nil
	}
	if info.Mode()&os.ModeSymlink != 0 {
		if at, err = filepath.EvalSymlinks(at); err != nil {
			return nil, leads
		}
		if info, err = os.Stat(at); err != nil {
			return nil, leads
		}
	}
	if !info.IsDir() {
		leads = append(leads, at)
		b, err := ReadFile(at)
		to, is := bytes.CutPrefix(b, []byte("gitdir: "))
		if err != nil || !is {
			return nil, leads
		}
		at = expand(namedPath(to), filepath.Dir(at), "")
		if at, err = filepath.EvalSymlinks(at); err != nil {
			return nil, leads
		}
	}
	r := &repository{worktree: worktree, dir: at}
	if lead := r.setCommon(); lead != "" {
		leads = append(leads, lead)
	}
	return r, leads
}

// setCommon sets the common directory, and returns the file that names it, if any.
func (r *repository) setCommon() (lead string) {
	var have marks
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		have.add(e.Name())
	}
	r.common, r.whole = r.dir, have.repository()
	if have.commondir {
		lead = filepath.Join(r.dir, "commondir")
		b, err := ReadFile(lead)
		common, cerr := filepath.EvalSymlinks(expand(namedPath(b), r.dir, ""))
		if err != nil || cerr != nil {
			r.whole = false
			return lead
		}
		r.common = common
	}
	return lead
}

// Repository returns the directories of dir's repository that are not in dir: git writes them to commit. The .git
// file or link in dir is believed only if the repository knows dir: what it leads to could be anybody's.
func Repository(dir string) []string {
	r, leads := resolve(dir)
	if r == nil || !r.whole || schema.Below(r.dir, dir) && schema.Below(r.common, dir) || !r.knows(leads) {
		return nil
	}
	return Outermost(slices.DeleteFunc([]string{r.common, r.dir}, func(d string) bool { return schema.Below(d, dir) }))
}

// knows reports whether the repository is the one of its worktree, not only in the opinion of the worktree's .git and
// of the files that lead there.
func (r *repository) knows(leads []string) bool {
	same := func(path string) bool {
		real, err := filepath.EvalSymlinks(path)
		return err == nil && (real == r.worktree || slices.Contains(leads, real))
	}
	if back, err := ReadFile(filepath.Join(r.dir, "gitdir")); err == nil { // of a linked worktree
		return same(expand(namedPath(back), r.dir, ""))
	}
	for _, e := range readConfig(filepath.Join(r.common, "config"), "", maxIncludes, func(string) {}) {
		if e.key == "core.worktree" { // of a submodule
			return same(expand(e.value, r.dir, ""))
		}
	}
	// A separate directory names no worktree. A directory called .git belongs to the one that it is in.
	return filepath.Base(r.dir) != ".git"
}

// git adds what git obeys in a repository.
func (s *searcher) git(r *repository) {
	config := filepath.Join(r.common, "config")
	own := readConfig(config, s.Home, 0, s.file)
	own = append(own, readConfig(filepath.Join(r.dir, "config.worktree"), s.Home, 0, s.file)...)
	if schema.Below(config, s.Trees...) {
		s.set.Configs = append(s.set.Configs, config)
	}
	hooks := filepath.Join(r.common, "hooks")
	starts := map[string]bool{}
	values := map[string][]string{}
	for _, e := range slices.Concat(s.base, own) {
		switch section, _, _ := strings.Cut(e.key, "."); section {
		case "filter", "diff", "merge":
			if parts := strings.Split(e.key, "."); len(parts) > 2 {
				starts[section+"="+strings.Join(parts[1:len(parts)-1], ".")] = true
			}
		}
		if e.key == "core.hookspath" {
			hooks = expand(e.value, r.where(), s.Home)
		}
	}
	for _, e := range own {
		if r.remoteOf == "" && strings.HasPrefix(e.key, "remote.") {
			s.remote(r, e.value)
		}
		if !harmless(e.key, e.value) || e.key == "core.worktree" && !r.belongs(e) {
			values[e.key] = append(values[e.key], e.value)
		}
	}
	for key, value := range values {
		s.obeys(r, "git's "+key, config, []byte(strings.Join(value, "\x00")))
		for _, v := range value {
			s.programs(r, key, v)
		}
	}
	s.hooks(r, hooks)
	s.attributes(r, starts)
	s.rebase(r)
}

// remote adds what git obeys in a remote of r that lies below one of Tops, where nothing else is compared: git push
// starts hooks there. It looks at each repository once: many can name it.
func (s *searcher) remote(r *repository, url string) {
	at, err := filepath.EvalSymlinks(expand(strings.TrimPrefix(url, "file://"), r.where(), s.Home))
	if err != nil || !schema.Below(at, s.Tops...) || !s.compares(r.where()) {
		return
	}
	its, _ := resolve(at)
	if its == nil {
		its = &repository{dir: at}
		its.setCommon()
	}
	if its.whole && !s.compares(its.where()) && !s.remotes[its.dir] {
		s.remotes[its.dir] = true
		its.remoteOf = r.where()
		s.git(its)
	}
}

// belongs reports whether the working tree that core.worktree names is the repository's, also in the opinion of the
// .git in it. Otherwise git would write there what somebody has committed here. One that does not exist belongs: that
// of a removed submodule is still named.
func (r *repository) belongs(worktree entry) bool {
	from := r.common
	if filepath.Dir(worktree.file) == r.dir { // config.worktree
		from = r.dir
	}
	at, err := filepath.EvalSymlinks(expand(worktree.value, from, ""))
	if err != nil {
		return true
	}
	its, _ := resolve(at)
	return its != nil && its.common == r.common
}

// rebase adds the commands that git executes when an interrupted rebase continues.
func (s *searcher) rebase(r *repository) {
	todo := filepath.Join(r.dir, "rebase-merge", "git-rebase-todo")
	text, err := ReadFile(todo)
	var commands []string
	if errors.Is(err, errNotSmall) {
		commands = []string{err.Error()}
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && (f[0] == "exec" || f[0] == "x") {
			commands = append(commands, line)
		}
	}
	if len(commands) > 0 {
		s.obeys(r, "git's rebase", todo, []byte(strings.Join(commands, "")))
	}
}

// obeys adds a fact about a repository. What git does not take for one yet counts: git init keeps hooks and
// configuration that are there.
func (s *searcher) obeys(r *repository, what, file string, content []byte) {
	s.fact(cmp.Or(r.remoteOf, r.where()), what, file, content)
}

// programs adds the files in the searched directories that a value of the configuration names.
func (s *searcher) programs(r *repository, key, value string) {
	for word := range strings.FieldsSeq(strings.TrimPrefix(value, "!")) {
		path := expand(strings.Trim(word, `"'`), r.where(), s.Home)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && schema.Below(s.follow(path),
			s.Trees...) {
			s.file(path)
			if b, err := ReadFile(path); err == nil {
				s.obeys(r, "git's "+key, path, b)
			}
		}
	}
}

// hooks adds the hooks in a directory.
func (s *searcher) hooks(r *repository, dir string) {
	s.file(dir)
	for name, content := range s.hooksIn(dir) {
		path := dir + "/" + name
		s.file(path)
		s.obeys(r, "git's hook "+name, path, content)
	}
}

// hooksIn returns the hooks in a directory by name, with digests of their contents. It reads each directory once: links
// of many repositories can lead to one.
func (s *searcher) hooksIn(dir string) map[string][]byte {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	if found, done := s.hooksOf[real]; done {
		return found
	}
	found := map[string][]byte{}
	s.hooksOf[real] = found
	entries, _ := os.ReadDir(real)
	for _, e := range entries {
		path := filepath.Join(real, e.Name())
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && !strings.HasSuffix(path, ".sample") {
			sum := sha256.Sum256(contentOf(path))
			found[e.Name()] = sum[:]
		}
	}
	return found
}

// attributes adds the filters, and drivers for differences and merges, that attributes choose and the configuration
// has.
func (s *searcher) attributes(r *repository, starts map[string]bool) {
	if len(starts) == 0 {
		return
	}
	files := []string{filepath.Join(r.common, "info", "attributes")}
	for _, path := range s.attributesFiles {
		if r.worktree != "" && schema.Below(path, r.worktree) {
			files = append(files, path)
		}
	}
	for _, path := range files {
		text, err := ReadFile(path)
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(text)) {
			if starts[word] {
				s.obeys(r, "git's attribute "+word, path, nil)
			}
		}
	}
}

// harmless reports whether git starts no program because of a key with this value, and reads no further file.
func harmless(key, value string) bool {
	return carried(key, value) || matches(harmlessKeys, key)
}

// carried reports whether a key with this value is what git itself writes in ordinary work, and harmless.
func carried(key, value string) bool {
	if !strings.HasSuffix(key, ".description") && (strings.Contains(value, "::") || strings.HasPrefix(value, "-")) {
		return false // remote-ext starts any program
	}
	return matches(carriedKeys, key)
}

// matches reports whether one of the patterns matches a key. Between section and name, a key may have anything.
func matches(patterns []string, key string) bool {
	parts := strings.Split(key, ".")
	section, name, sub := parts[0], parts[len(parts)-1], len(parts) > 2
	return slices.ContainsFunc(patterns, func(p string) bool {
		want := strings.Split(p, ".")
		last := want[len(want)-1]
		return want[0] == section && (last == "*" || last == name) && sub == (len(want) > 2)
	})
}
