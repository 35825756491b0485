package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
)

// Book is a new repository beside the original.
type Book struct {
	// Dir is the working tree, and At the place of the original: the directory .git, or what a file .git names.
	Dir, At string
	// Store is the directory of the new one.
	Store string
	// Commit is the commit that is checked out; empty if the repository has none yet.
	Commit string
	// Others are directories that have more of the original's history, or other versions of its files: linked
	// worktrees, repositories that it borrows objects from, and remotes in the file system.
	Others []string
	// Ignored are paths in the working tree, relative to it, that git ignores in the new one. Set it before Make.
	Ignored []string
	// Modules are the books of submodules. The Store of one whose original lies in At lies in Store.
	Modules []*Book

	Heads  Heads
	Format string // of objects
	Config string // of the new one, when it was made
	Path   string // of the original's configuration
}

// ErrUnclosable is wrapped by the error of Close about a repository whose history cannot be closed.
var ErrUnclosable = errors.New("the repository's history cannot be closed")

// Close looks at the repository of the working tree dir, a path without symbolic links. It returns nil if dir is in no
// repository. The error wraps ErrUnclosable if the book's Make could not close its history. The new repository will be
// in the directory store.
func Close(ctx context.Context, dir, store string) (*Book, error) {
	source := git{ctx: ctx, dir: dir}
	said, err := source.line("rev-parse", "--path-format=absolute", "--absolute-git-dir", "--git-common-dir",
		"--git-path", "config", "--git-path", "objects", "--show-object-format", "--show-toplevel")
	lines := strings.Split(said, "\n")
	if err != nil {
		if _, none := source.line("rev-parse", "--git-dir"); none != nil {
			return nil, nil
		}
	}
	switch {
	case err != nil || len(lines) != 6:
		return nil, fmt.Errorf("%w: it has no working tree; start the command in a clone", ErrUnclosable)
	case lines[5] != dir:
		return nil, fmt.Errorf("%w: it is in a directory above %s; start the command there", ErrUnclosable, dir)
	}
	b := &Book{Dir: dir, At: lines[0], Store: store, Path: lines[2], Format: lines[4]}
	var both sync.WaitGroup
	var unclear error
	both.Go(func() {
		if unclear = source.without(lacking); unclear == nil { // nothing here compares files
			unclear = source.finished(true)
		}
		if unclear == nil {
			b.Heads, unclear = source.heads()
		}
	})
	err = b.others(source, lines[1], lines[3])
	if both.Wait(); unclear != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnclosable, unclear)
	}
	if err != nil {
		return nil, err
	}
	b.Commit = b.Heads.Commit
	return b, b.modules(ctx)
}

// Make makes the new repository, in a directory that is empty or does not exist. packs is a directory with the packs
// of earlier books, which Make adds to.
func (b *Book) Make(ctx context.Context, packs string) error {
	if err := os.MkdirAll(b.Store, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(packs, 0o700); err != nil {
		return err
	}
	var err error
	source := git{ctx: ctx, dir: b.Dir}
	if b.Heads.Tags, err = source.tags(b.Commit); err != nil {
		return err
	}
	if err := remake(source, b.git(ctx), b.Heads, b.Format, true, packs); err != nil {
		return fmt.Errorf("%s: %w", b.Dir, err)
	}
	if err := b.ignore(); err != nil {
		return err
	}
	config, err := startup.ReadFile(filepath.Join(b.Store, "config"))
	if err != nil {
		return err
	}
	b.Config = string(config)
	for _, module := range b.Modules {
		if err := module.Make(ctx, packs); err != nil {
			return err
		}
	}
	return nil
}

// ignore adds a line for each of Ignored to the file of patterns.
func (b *Book) ignore() error {
	if len(b.Ignored) == 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(b.Store, "info/exclude"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, name := range b.Ignored {
		_, err = fmt.Fprintf(f, "\n/%s\n", schema.EscapeGlob(name))
		if err != nil {
			break
		}
	}
	return errors.Join(err, f.Close())
}

// Tracks reports whether the index has a path of the working tree.
func (b *Book) Tracks(path string) bool {
	for entry := range strings.SplitSeq(b.Heads.Index, "\x00") {
		if _, name, _ := strings.Cut(entry, "\t"); filepath.Join(b.Dir, name) == path && name != "" {
			return true
		}
	}
	return false
}

// Beyond lists references that lead to commits which the one that is checked out does not have, at most 100. It returns
// none if dir is in no repository.
func Beyond(ctx context.Context, dir string) []string {
	refs, _ := git{ctx: ctx, dir: dir}.line("for-each-ref", "--no-merged=HEAD", "--count=100", "--format=%(refname)")
	return strings.Fields(refs)
}

// Copies returns which of some directories are other repositories that have the commit: with a working tree, its
// directory.
func (b *Book) Copies(ctx context.Context, dirs []string) []string {
	found := make([]string, len(dirs))
	var looking sync.WaitGroup
	turns := make(chan struct{}, 4)
	for i, dir := range dirs {
		at := dir
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			at = filepath.Join(dir, ".git")
		}
		looking.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if _, err := (git{ctx: ctx, dir: "/", at: at}).line("cat-file", "-e", b.Commit+"^{commit}"); err == nil {
				found[i] = dir
			}
		})
	}
	looking.Wait()
	return slices.DeleteFunc(found, func(dir string) bool { return dir == "" })
}

// Save writes the book to a file, for Load in another process.
func (b *Book) Save(path string) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// Load reads a book that Save wrote.
func Load(path string) (*Book, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := &Book{}
	return b, json.Unmarshal(text, b)
}

func (b *Book) git(ctx context.Context) git { return git{ctx, b.Dir, b.Store} }

// modules adds the books of the submodules that are checked out.
func (b *Book) modules(ctx context.Context) error {
	for entry := range strings.SplitSeq(b.Heads.Index, "\x00") {
		about, path, _ := strings.Cut(entry, "\t")
		if !strings.HasPrefix(about, "160000 ") {
			continue
		}
		dir := filepath.Join(b.Dir, path)
		if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
			continue
		}
		at, err := git{ctx: ctx, dir: dir}.line("rev-parse", "--absolute-git-dir")
		if err != nil {
			return fmt.Errorf("%w: submodule %s: %w", ErrUnclosable, schema.Readable(path), err)
		}
		store := b.Store + "-" + strconv.Itoa(len(b.Modules))
		if schema.Below(at, b.At) {
			store = b.Store + strings.TrimPrefix(at, b.At)
		}
		module, err := Close(ctx, dir, store)
		if err != nil {
			return err
		}
		if module == nil {
			continue
		}
		b.Modules = append(b.Modules, module)
		b.Others = append(b.Others, module.Others...)
	}
	return nil
}

// Apart are the books whose originals do not lie in that of another one: the book itself, and those of some submodules.
func (b *Book) Apart() []*Book {
	all := []*Book{b}
	for _, module := range b.Modules {
		for _, m := range module.Apart() {
			if !schema.Below(m.At, b.At) {
				all = append(all, m)
			}
		}
	}
	return all
}

// others finds Others. A list of what to borrow from may lead on.
func (b *Book) others(source git, common, objects string) error {
	var above string
	add := func(path string) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(b.Dir, path)
		}
		real, err := filepath.EvalSymlinks(path)
		switch {
		case err != nil || real == b.Dir || schema.Below(real, b.At) || slices.Contains(b.Others, real):
		case schema.Below(b.Dir, real):
			above = real
		default:
			b.Others = append(b.Others, real)
		}
	}
	add(common)
	trees, err := source.line("worktree", "list", "--porcelain", "-z")
	if err != nil {
		return err
	}
	for field := range strings.SplitSeq(trees, "\x00") {
		if tree, is := strings.CutPrefix(field, "worktree "); is {
			add(tree)
		}
	}
	// An error if there is none.
	urls, _ := source.line("config", "--get-regexp", "-z", `^(remote\..*\.(url|pushurl)|submodule\..*\.url)$`)
	for entry := range strings.SplitSeq(urls, "\x00") {
		if _, url, is := strings.Cut(entry, "\n"); is {
			add(strings.TrimPrefix(url, "file://"))
		}
	}
	if above != "" {
		return fmt.Errorf("%w: %s lies in %s, which has another version; start the command in a clone elsewhere",
			ErrUnclosable, b.Dir, above)
	}
	stores := []string{objects}
	for len(stores) > 0 && len(b.Others) < 1000 {
		list, _ := startup.ReadFile(filepath.Join(stores[0], "info", "alternates"))
		for line := range strings.Lines(string(list)) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(stores[0], line)
			}
			known := len(b.Others)
			if add(line); len(b.Others) > known {
				stores = append(stores, line)
			}
		}
		stores = stores[1:]
	}
	return nil
}

// Return brings the command's branches, tags and stashes back to the original, and, if the branch that is checked out
// is among them, HEAD and the index. id names the run. aside are references whose names the original uses for
// something else. They are below refs/assay-run/ID. Call Return when no process of the command is left.
func (b *Book) Return(ctx context.Context, id string) (aside []string, err error) {
	for _, module := range b.Modules {
		if err := b.straight(module); err != nil {
			return aside, err
		}
		of, err := module.Return(ctx, id)
		aside = append(aside, of...)
		if err != nil {
			return aside, fmt.Errorf("submodule %s: %w", module.Dir, err)
		}
	}
	agent, original := b.git(ctx), git{ctx: ctx, dir: b.Dir}
	after, _ := startup.ReadFile(filepath.Join(b.Store, "config"))
	if err := b.defuse(); err != nil {
		return aside, err
	}
	refs, err := agent.line("for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return aside, err
	}
	head, herr := agent.line("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
	branch, _ := agent.line("symbolic-ref", "--quiet", "HEAD")
	var now Heads
	index, ierr := agent.run(nil, "ls-files", "--stage", "-z")
	now.Index = string(index)
	before := map[string]string{orHead(b.Heads.Branch): b.Heads.Commit}
	for tag := range strings.SplitSeq(b.Heads.Tags, "\n") {
		if object, name, ok := strings.Cut(tag, " "); ok {
			before[name] = object
		}
	}
	var wanted, updates strings.Builder
	kept := true // the branch that is checked out has its name
	for line := range strings.SplitSeq(refs, "\n") {
		object, name, ok := strings.Cut(line, " ")
		if !ok || before[name] == object || name == "refs/stash" ||
			!strings.HasPrefix(name, "refs/heads/") && !strings.HasPrefix(name, "refs/tags/") {
			continue
		}
		now, _ := original.line("rev-parse", "--quiet", "--verify", name)
		if now != before[name] {
			aside = append(aside, name)
			kept = kept && name != branch
			name, now = "refs/assay-run/"+id+strings.TrimPrefix(name, "refs"), ""
		}
		if now == "" {
			now = strings.Repeat("0", len(object))
		}
		fmt.Fprintln(&wanted, object)
		fmt.Fprintf(&updates, "update %s %s %s\n", name, object, now)
	}
	// An error if there is none.
	stashes, _ := agent.line("log", "--walk-reflogs", "--format=%H %gs", "refs/stash", "--")
	for line := range strings.Lines(stashes) {
		object, _, _ := strings.Cut(line, " ")
		fmt.Fprintln(&wanted, object)
	}
	if herr == nil {
		fmt.Fprintln(&wanted, head)
	}
	had := map[string]bool{}
	for _, object := range b.Heads.staged(nil) {
		had[object] = true
	}
	for _, object := range now.staged(had) {
		fmt.Fprintln(&wanted, object)
	}
	if b.Commit != "" {
		fmt.Fprintln(&wanted, "^"+b.Commit)
	}
	if err := b.carry(agent, original, wanted.String()); err != nil {
		return aside, err
	}
	if _, err := original.run([]byte(updates.String()), "update-ref", "--stdin"); err != nil {
		return aside, err
	}
	lines := strings.Split(strings.TrimSpace(stashes), "\n")
	for _, line := range slices.Backward(lines) {
		if object, message, ok := strings.Cut(line, " "); ok {
			if _, err := original.run(nil, "stash", "store", "--quiet", "-m", message, object); err != nil {
				return aside, err
			}
		}
	}
	if !kept || herr != nil || ierr != nil {
		return aside, nil
	}
	if branch != "" {
		_, err = original.run(nil, "symbolic-ref", "HEAD", branch)
	} else {
		_, err = original.run(nil, "update-ref", "--no-deref", "HEAD", head)
	}
	return aside, errors.Join(err, b.returnIndex(agent), b.returnConfig(string(after)))
}

// returnIndex copies the command's index to the original, as one file: the original has no part of one that is split.
func (b *Book) returnIndex(agent git) error {
	shared, err := sharedIndexes(b.Store)
	if err == nil && len(shared) > 0 {
		err = os.RemoveAll(filepath.Join(b.Store, "index.lock")) // of a git that was killed
		if err == nil {
			_, err = agent.run(nil, "update-index", "--no-split-index")
		}
	}
	if err != nil {
		return err
	}
	return b.returnFile("index")
}

// defuse removes from the command's repository what makes git read or start something else. What the command's
// symbolic links lead to stays.
func (b *Book) defuse() error {
	store, err := os.OpenRoot(b.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	var errs []error
	for _, name := range []string{"config", "config.worktree", "commondir", "hooks", "worktrees",
		"objects/info/alternates", "objects/info/http-alternates", "info/grafts", "refs/replace"} {
		errs = append(errs, store.RemoveAll(name))
	}
	config := "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = " + b.Format + "\n"
	errs = append(errs, store.WriteFile("config", []byte(config), 0o644))
	errs = append(errs, filepath.WalkDir(b.Store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() {
			err = b.notOrdinary(path)
		}
		return err
	}))
	return errors.Join(errs...)
}

func (b *Book) notOrdinary(path string) error {
	return fmt.Errorf("the command left %s, which is not a regular file, in its repository",
		schema.Readable(strings.TrimPrefix(path, b.Store+"/")))
}

// straight is an error if the way from the command's repository to that of a submodule leads over a symbolic link,
// which could be to any directory.
func (b *Book) straight(module *Book) error {
	if !schema.Below(module.Store, b.Store) {
		return nil // it lies beside it, where the command could not replace it
	}
	at := b.Store
	for name := range strings.SplitSeq(strings.TrimPrefix(module.Store, b.Store+"/"), "/") {
		at = filepath.Join(at, name)
		if info, err := os.Lstat(at); err != nil {
			return err
		} else if !info.IsDir() {
			return b.notOrdinary(at)
		}
	}
	return nil
}

// carry copies objects, and checks them.
func (b *Book) carry(from, to git, wanted string) error {
	prefix := filepath.Join(b.Store, "carried")
	name, err := from.feed(strings.NewReader(wanted), "pack-objects", "--revs", "--quiet", "--non-empty", prefix)
	if err != nil {
		return err
	}
	for sum := range strings.Lines(string(name)) {
		pack, err := os.Open(prefix + "-" + strings.TrimSpace(sum) + ".pack")
		if err != nil {
			return err
		}
		defer pack.Close()
		if _, err := to.feed(pack, "index-pack", "--stdin", "--strict"); err != nil {
			return err
		}
	}
	return nil
}

// returnFile copies a file of the repository to the original.
func (b *Book) returnFile(name string) error {
	data, err := os.ReadFile(filepath.Join(b.Store, name)) // a regular file: see defuse
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return replace(filepath.Join(b.At, name), data)
}

// returnConfig copies what git writes in ordinary work.
func (b *Book) returnConfig(after string) error {
	now, err := startup.ReadFile(b.Path)
	if err != nil {
		return err
	}
	merged, _ := startup.Merge(b.Config, string(now), after)
	if merged == string(now) {
		return nil
	}
	return replace(b.Path, []byte(merged))
}

// replace replaces a file as git does, under its lock.
func replace(path string, data []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	lock, err := os.OpenFile(path+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = lock.Write(data)
	if err = errors.Join(err, lock.Sync(), lock.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".lock"))
	}
	return os.Rename(path+".lock", path)
}
