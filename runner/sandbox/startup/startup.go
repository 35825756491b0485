package startup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/assay-run/assay-run/schema"
)

// Where says what is searched.
type Where struct {
	// Dir is the working directory.
	Dir string
	// Trees are the directories that are searched and compared, with Dir. Overlaps are searched once.
	Trees []string
	// Shared are directories that are searched, but not compared: others change them at the same time.
	Shared []string
	// Tops are directories that are compared without those below them. Git looks for a repository in every directory
	// above the one in which it starts, so what is here matters to many.
	Tops []string
	// Home is the user's home directory, or empty. Only the files that are listed are looked at.
	Home string
}

// NotCompared lists the directories below which nothing is compared, though the command may write there.
func (w *Where) NotCompared() []string {
	compared := append(slices.Clone(w.Trees), w.Dir)
	return Outermost(slices.DeleteFunc(slices.Clone(w.Shared), func(shared string) bool {
		return schema.Below(shared, compared...)
	}))
}

// Set is what programs obey at one moment.
type Set struct {
	// Files are what they read: files and directories, existing and missing ones, inside the trees or in the home,
	// sorted. A symbolic link that leads to one is a file of its own.
	Files []string
	// Configs are those of Files that are the main configuration of a repository.
	Configs []string
	// Sockets are the files of unix sockets in the trees.
	Sockets []string
	// Names counts what was looked at in the trees.
	Names int
	// Unsearched are directories that could not be read, or for which there was no time; at most maxUnsearched. More
	// counts the others.
	Unsearched []string
	More       int
	// Cut means that there was no time for some.
	Cut bool

	facts map[fact]string
}

const maxUnsearched = 100

// fact is something that a program obeys.
type fact struct {
	where string // the directory in which the program runs
	what  string
	file  string
}

// Since returns what is obeyed in s, and was not obeyed in before, or had another content.
func (s *Set) Since(before *Set) []schema.StartupChange {
	var changes []schema.StartupChange
	for f, content := range s.facts {
		if old, was := before.facts[f]; !was || old != content {
			changes = append(changes, schema.StartupChange{Where: f.where, What: f.what, Path: f.file})
		}
	}
	slices.SortFunc(changes, func(a, b schema.StartupChange) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What), cmp.Compare(a.Path, b.Path))
	})
	return changes
}

// searcher makes a Set.
type searcher struct {
	Where
	set             *Set
	files           map[string]bool
	base            []entry // git's configuration of the user and the host
	repositories    []*repository
	attributesFiles []string
	roots           map[string]bool // working directory and repositories
	nested          []startName     // files of programs in other directories
	skip            map[string]bool
	compared        []string
	digests         map[string][]byte            // see digest
	hooksOf         map[string]map[string][]byte // see hooksIn
	remotes         map[string]bool              // see remote
	walked          map[string]bool              // of each tree, whether it was searched
	top             string                       // the tree that is being searched
}

// startName is a name in a directory that programs look for where they start.
type startName struct{ dir, name string }

// maxNested limits the files of programs outside of the working directory and of the roots of repositories: each that
// is protected is a mount.
const maxNested = 1000

// Search looks through the trees. When ctx ends, it returns what it has found so far, and says what was not searched.
func Search(ctx context.Context, w Where) *Set {
	s := &searcher{Where: w, set: &Set{facts: map[fact]string{}}, files: map[string]bool{},
		roots: map[string]bool{w.Dir: true}, skip: pseudo(),
		digests: map[string][]byte{}, hooksOf: map[string]map[string][]byte{}, walked: map[string]bool{},
		remotes: map[string]bool{}}
	s.compared = append(slices.Clone(w.Trees), w.Dir)
	trees := slices.Concat(s.compared, w.Shared)
	s.Trees = Outermost(slices.Clone(trees))
	if w.Home != "" {
		s.compared = append(s.compared, w.Home)
	}
	for _, path := range []string{"/etc/gitconfig", filepath.Join(w.Home, ".config/git/config"),
		filepath.Join(w.Home, ".gitconfig")} {
		if filepath.IsAbs(path) {
			s.base = append(s.base, readConfig(path, w.Home, 0, func(read string) {
				if read != path { // an include
					s.included(read)
				}
			})...)
		}
	}
	slices.Sort(trees) // a tree comes before those in it
	for _, tree := range trees {
		s.walked[tree] = false
	}
	for _, tree := range trees {
		if !s.walked[tree] { // one above is not, or may not be listed
			s.walk(ctx, tree)
		}
	}
	for _, top := range w.Tops {
		s.roots[top] = true
		if !s.walked[top] {
			s.consider(top, list(ctx, top))
		}
	}
	for _, r := range s.repositories {
		s.git(r)
	}
	for dir := range s.roots {
		if dir == w.Home {
			continue // agents keep their own files there
		}
		for _, name := range workspaceFiles {
			s.startFile(dir, name)
		}
	}
	for _, n := range s.nested {
		if s.roots[n.dir] {
			continue
		}
		for _, name := range workspaceFiles {
			if first, _, _ := strings.Cut(name, "/"); first == n.name {
				s.startFile(n.dir, name)
			}
		}
	}
	if w.Home != "" {
		for _, name := range homeFiles {
			s.startFile(w.Home, name)
		}
	}
	s.set.Files = slices.Sorted(maps.Keys(s.files))
	slices.Sort(s.set.Configs)
	s.set.Configs = slices.Compact(s.set.Configs)
	return s.set
}

// included adds a file that the configuration of the user or the host includes, if it is in the trees.
func (s *searcher) included(path string) {
	if schema.Below(s.follow(path), s.Trees...) {
		s.file(path)
		s.fact(s.Dir, "git's configuration", path, contentOf(path))
	}
}

// walk searches a tree, the directories nearest to its root first.
func (s *searcher) walk(ctx context.Context, tree string) {
	s.top, s.walked[tree] = tree, true
	for level := []string{tree}; len(level) > 0; {
		var below []string
		for dirs := range slices.Chunk(level, listedAtOnce) {
			for i, l := range listAll(ctx, dirs) {
				below = append(below, s.consider(dirs[i], l)...)
			}
		}
		level = below
	}
}

// listedAtOnce limits the listings in memory.
const listedAtOnce = 512

// listing is what a search needs to know of a directory.
type listing struct {
	names      int
	marks      marks
	below      []string // names of directories
	sockets    []string
	anywhere   []string // names in anywhere
	git        bool     // there is a .git
	attributes bool     // there is a .gitattributes
	err        error
}

// listAll lists directories, as many at a time as there are processors: a search mostly waits for the kernel.
func listAll(ctx context.Context, dirs []string) []listing {
	listings := make([]listing, len(dirs))
	workers := min(runtime.GOMAXPROCS(0), len(dirs))
	var all sync.WaitGroup
	for first := range workers {
		all.Go(func() {
			for i := first; i < len(dirs); i += workers {
				listings[i] = list(ctx, dirs[i])
			}
		})
	}
	all.Wait()
	return listings
}

func list(ctx context.Context, dir string) (l listing) {
	if l.err = ctx.Err(); l.err != nil {
		return l
	}
	entries, err := os.ReadDir(dir)
	l.names, l.err = len(entries), err
	for _, e := range entries {
		name := e.Name()
		l.marks.add(name)
		l.git = l.git || name == ".git"
		l.attributes = l.attributes || name == ".gitattributes"
		if anywhere[name] {
			l.anywhere = append(l.anywhere, name)
		}
		switch {
		case e.IsDir():
			l.below = append(l.below, name)
		case e.Type() == fs.ModeSocket:
			l.sockets = append(l.sockets, name)
		}
	}
	return l
}

// consider adds what a directory contains, and returns the directories below it that are to be searched.
func (s *searcher) consider(dir string, l listing) (below []string) {
	switch {
	case l.err == nil:
	case errors.Is(l.err, context.Canceled) || errors.Is(l.err, context.DeadlineExceeded):
		s.set.Cut = true
		s.unsearched(dir)
	default:
		// What belongs to another user can neither be read nor written by this one.
		info, err := os.Lstat(dir)
		if err == nil && (!errors.Is(l.err, fs.ErrPermission) || mine(info)) || errors.Is(err, syscall.ENAMETOOLONG) {
			s.unsearched(dir)
		}
	}
	s.set.Names += l.names
	if l.git { // what is in it is found like any other directory
		r, leads := resolve(dir)
		s.follow(dir + "/.git") // the directory itself can be written
		for _, lead := range leads {
			s.file(lead)
		}
		if r != nil {
			s.repositories = append(s.repositories, r)
			s.roots[dir] = true
		}
	}
	if l.attributes {
		s.attributesFiles = append(s.attributesFiles, dir+"/.gitattributes")
	}
	if len(l.anywhere) > 0 && !ofPackages(dir) && !s.ofHome(dir) {
		for _, name := range l.anywhere {
			if len(s.nested) == maxNested {
				s.unsearched(dir)
				break
			}
			s.nested = append(s.nested, startName{dir, name})
		}
	}
	for _, name := range l.sockets {
		s.set.Sockets = append(s.set.Sockets, filepath.Join(dir, name))
	}
	// One called .git is found from the directory that it is in, unless that is not searched.
	known := filepath.Base(dir) == ".git" && dir != s.top
	if l.marks.repository() && !known {
		r := &repository{dir: dir}
		if lead := r.setCommon(); lead != "" {
			s.file(lead)
		}
		s.repositories = append(s.repositories, r)
	}
	for _, name := range l.below {
		at := filepath.Join(dir, name)
		if again, isTree := s.walked[at]; s.skip[at] || again {
			continue
		} else if isTree {
			s.walked[at] = true
		}
		below = append(below, at)
	}
	return below
}

func (s *searcher) unsearched(dir string) {
	if len(s.set.Unsearched) < maxUnsearched {
		s.set.Unsearched = append(s.set.Unsearched, dir)
	} else {
		s.set.More++
	}
}

// pseudo are the mounts of file systems that the kernel makes up, in which nobody leaves a file.
func pseudo() map[string]bool { return map[string]bool{"/proc": true, "/sys": true} }

// ofHome reports whether dir is in the home, and in no tree there: homeFiles are for it. Agents have their own files in
// it.
func (s *searcher) ofHome(dir string) bool {
	return s.Home != "" && schema.Below(dir, s.Home) &&
		!slices.ContainsFunc(slices.Concat(s.compared[:len(s.compared)-1], s.Shared), func(tree string) bool {
			return schema.Below(dir, tree) && schema.Below(tree, s.Home)
		})
}

// file adds a path that programs read, with the symbolic links on the way to it.
func (s *searcher) file(path string) { s.add(s.follow(path)) }

// follow adds the symbolic links on the way to a path, and returns the path without them.
func (s *searcher) follow(path string) string {
	at, links := "/", 0
	for path != "" {
		name, rest, _ := strings.Cut(path, "/")
		at, path = filepath.Join(at, name), rest // what .. means is certain: at has no links
		if to, err := os.Readlink(at); err == nil && links < maxLinks {
			s.add(at)
			links++
			if at = filepath.Dir(at); filepath.IsAbs(to) {
				at = "/"
			}
			path = to + "/" + rest
		}
	}
	return at
}

// maxLinks is the kernel's limit for symbolic links in a path.
const maxLinks = 40

func (s *searcher) add(path string) {
	if schema.Below(path, s.Trees...) || s.Home != "" && schema.Below(path, s.Home) {
		s.files[path] = true
	}
}

// compares reports whether facts about a directory count.
func (s *searcher) compares(where string) bool {
	return schema.Below(where, s.compared...) || slices.Contains(s.Tops, where)
}

// fact adds something that programs obey.
func (s *searcher) fact(where, what, file string, content []byte) {
	if !s.compares(where) {
		return
	}
	sum := sha256.Sum256(content)
	s.set.facts[fact{where, what, file}] = string(sum[:])
}

// startFile adds a file of a program, or all files in a directory of it.
func (s *searcher) startFile(dir, name string) {
	at := filepath.Join(dir, name)
	s.file(at)
	real, err := filepath.EvalSymlinks(at)
	if err != nil {
		return
	}
	if info, err := os.Stat(real); err == nil && info.IsDir() && real != at {
		s.fact(dir, name, real, s.digest(real)) // a link can lead to anything, as can a thousand of them
		return
	}
	at = real
	_ = filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		s.fact(dir, name, path, contentOf(path))
		return nil
	})
}

// digest stands for what a directory in the trees contains. It reads each directory once.
func (s *searcher) digest(dir string) []byte {
	if sum, done := s.digests[dir]; done || s.skip[dir] || !schema.Below(dir, s.Trees...) {
		return sum
	}
	h := sha256.New()
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		var b []byte
		if at := filepath.Join(dir, e.Name()); e.IsDir() {
			b = s.digest(at)
		} else {
			b = contentOf(at)
		}
		fmt.Fprintf(h, "%q %x\n", e.Name(), sha256.Sum256(b))
	}
	s.digests[dir] = h.Sum(nil)
	return s.digests[dir]
}

// contentOf is a file's content, or what kept it from being read.
func contentOf(path string) []byte {
	b, err := ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

// Outermost returns the paths that are not below another one, sorted.
func Outermost(paths []string) []string {
	slices.Sort(paths)
	var out []string
	for _, p := range slices.Compact(paths) {
		if !schema.Below(p, out...) {
			out = append(out, p)
		}
	}
	return out
}

// mine reports whether a file belongs to this process's user.
func mine(info fs.FileInfo) bool { return info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid()) }
