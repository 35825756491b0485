package repository

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// git is a directory with a git repository, which may be outside of it. Its commands change nothing there that the
// user would notice.
type git struct {
	ctx context.Context
	dir string
	at  string // the repository, if it is not dir's own
}

// store is the directory of a repository that was made here.
func (g git) store() string {
	if g.at != "" {
		return g.at
	}
	return filepath.Join(g.dir, ".git")
}

// gitStartsNothing keeps git from starting what a repository's configuration names. Filters have no such switch: see
// [git.without].
var gitStartsNothing = []string{
	"-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
	"-c", "protocol.allow=never",
}

// Keys of configuration that make git start programs when files are compared, and fetch what it lacks.
const (
	filters = `filter\..*|diff\..*\.(textconv|command)|remote\..*\.uploadpack`
	lacking = `extensions\.partialclone|remote\..*\.promisor`
)

// without refuses a repository whose own configuration has keys: an agent may have made it.
func (g git) without(keys string) error {
	found, err := g.line("config", "--show-scope", "--name-only", "--get-regexp", "^("+keys+")$")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // there is none
	}
	for line := range strings.Lines(found) {
		scope, key, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if scope == "local" || scope == "worktree" { // the user's own configuration is the user's
			return fmt.Errorf("the configuration of its git repository has %s, which can make git start programs: "+
				"clone it yourself, and name the clone", schema.Readable(key))
		}
	}
	return err
}

// run runs git with an input, and returns its output.
func (g git) run(in []byte, args ...string) ([]byte, error) {
	return g.feed(bytes.NewReader(in), args...)
}

func (g git) feed(in io.Reader, args ...string) ([]byte, error) {
	where := []string{"-C", g.dir}
	if g.at != "" {
		where = append(where, "--git-dir="+g.at, "--work-tree="+g.dir)
	}
	cmd := exec.CommandContext(g.ctx, "git", slices.Concat(where, gitStartsNothing, args)...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GIT_") { // such as GIT_DIR, which would be another repository
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=/dev/null") // the history is what the commits say
	cmd.Stdin = in
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args[:min(len(args), 3)], " "), err,
			schema.Readable(strings.TrimSpace(stderr.String())))
	}
	return out, err
}

// line is the output of git without the newline at its end.
func (g git) line(args ...string) (string, error) {
	out, err := g.run(nil, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// paths are the absolute paths of files of the repository.
func (g git) paths(names ...string) ([]string, error) {
	args := []string{"rev-parse", "--path-format=absolute"}
	for _, name := range names {
		args = append(args, "--git-path", name)
	}
	said, err := g.line(args...)
	paths := strings.Split(said, "\n")
	if err == nil && len(paths) != len(names) {
		err = fmt.Errorf("git rev-parse: %d paths of %d files", len(paths), len(names))
	}
	return paths, err
}

// Heads are what is checked out of a repository.
type Heads struct {
	Commit string // empty before the first one
	Branch string // empty if HEAD is detached
	Index  string // the output of git ls-files --stage -z
	Tags   string // of the commit's history: lines with an object and a name
}

func (g git) heads() (h Heads, err error) {
	var index sync.WaitGroup
	index.Go(func() { h.Index, err = g.line("ls-files", "--stage", "-z") })
	h.Branch, _ = g.line("symbolic-ref", "--quiet", "HEAD")
	h.Commit, _ = g.line("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
	index.Wait()
	return h, err
}

// tags are Heads.Tags.
func (g git) tags(commit string) (string, error) {
	if commit == "" {
		return "", nil
	}
	return g.line("for-each-ref", "--merged="+commit, "--format=%(objectname) %(refname)", "refs/tags")
}

// Files of a repository in the middle of a command whose state Make does not keep. A commit in the middle of a merge
// has other parents. In that of a rebase or a bisection, commits and HEAD are as ever.
var (
	merging  = []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"}
	rebasing = []string{"rebase-merge", "rebase-apply", "BISECT_LOG"}
)

// Describe describes what Make makes of the repository of a directory. It is an error if that would
// not be all.
func Describe(dir string) (Heads, error) {
	g := git{ctx: context.Background(), dir: dir}
	if err := g.without(filters + "|" + lacking); err != nil {
		return Heads{}, err
	}
	h, err := g.heads()
	if err == nil {
		err = g.finished(false)
	}
	if err == nil {
		h.Tags, err = g.tags(h.Commit)
	}
	return h, err
}

// finished refuses a repository in the middle of a command. With may, that can be a rebase or a bisection.
func (g git) finished(may bool) error {
	names := slices.Concat(rebasing, merging)
	paths, err := g.paths(names...)
	if err != nil {
		return err
	}
	for i, path := range paths {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if may && i < len(rebasing) {
			return nil
		}
		return fmt.Errorf("git is in the middle of a command there (%s): finish it or abort it", names[i])
	}
	return nil
}

// Make makes the directory to, a copy of the directory from, a git repository of its own: at the same commit
// and branch, with the same index, configuration and hooks, and with the commit's history and its tags. Other branches,
// stashes and logs are not in it.
func Make(ctx context.Context, from, to string) error {
	source, target := git{ctx: ctx, dir: from}, git{ctx: ctx, dir: to}
	if err := source.without(filters + "|" + lacking); err != nil {
		return err
	}
	h, err := source.heads()
	if err == nil {
		h.Tags, err = source.tags(h.Commit)
	}
	if err != nil {
		return err
	}
	if err := workspace.Remove(target.store()); err != nil {
		return err
	}
	format, err := source.line("rev-parse", "--show-object-format")
	if err != nil {
		return err
	}
	if err := remake(source, target, h, format, false, ""); err != nil {
		return err
	}
	return target.compare(source)
}

// remake makes the target's repository, with objects in the given format. harmless leaves out what makes git start
// programs, and remotes. packs is where packs are kept, or empty.
func remake(source, target git, h Heads, format string, harmless bool, packs string) error {
	if _, err := target.run(nil, "init", "--quiet", "--template=", "--object-format="+format); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(target.store(), "info"), 0o755); err != nil {
		return err
	}
	names := []string{"config", "config.worktree", "shallow", "index", "info/exclude", "info/attributes",
		"info/sparse-checkout", "hooks"}
	if harmless {
		names = names[:len(names)-1]
	}
	paths, err := source.paths(names...)
	if err != nil {
		return err
	}
	for i, name := range names {
		if err := copyGitFile(target.ctx, paths[i], filepath.Join(target.store(), name)); err != nil {
			return err
		}
		if name != "index" {
			continue
		}
		dir := filepath.Dir(paths[i])
		shared, err := sharedIndexes(dir)
		if err != nil {
			return err
		}
		for _, part := range shared {
			err := copyGitFile(target.ctx, filepath.Join(dir, part), filepath.Join(target.store(), part))
			if err != nil {
				return err
			}
		}
	}
	configure := target.configure
	if harmless {
		configure = func() error { return target.disarm(strings.TrimPrefix(h.Branch, "refs/heads/")) }
	}
	if err := configure(); err != nil {
		return err
	}
	return target.receive(source, h, packs)
}

// sharedIndexes are the names of the files in a repository that have parts of a split index.
func sharedIndexes(dir string) ([]string, error) { return fs.Glob(os.DirFS(dir), "sharedindex.*") }

// copyGitFile copies a file or directory of a repository, if it exists.
func copyGitFile(ctx context.Context, path, copied string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		if err := workspace.Remove(copied); err != nil {
			return err
		}
		return workspace.Copy(ctx, path, copied)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(copied, data, 0o644)
}

// configure removes from a copied configuration what is about the place of the original.
func (g git) configure() error {
	elsewhere := git{ctx: g.ctx, dir: "/"} // since the wrong place may keep git from starting
	for _, name := range []string{"config", "config.worktree"} {
		path := filepath.Join(g.store(), name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		for _, key := range []string{"core.worktree", "core.bare"} {
			if _, err := elsewhere.line("config", "--file", path, "--get", key); err != nil {
				continue // it is not set
			}
			if _, err := elsewhere.run(nil, "config", "--file", path, "--unset-all", key); err != nil {
				return err
			}
		}
	}
	return nil
}

// disarm keeps of a copied configuration what is harmless, and not about the place of the original or other branches.
func (g git) disarm(branch string) error {
	for _, name := range []string{"config", "config.worktree"} {
		path := filepath.Join(g.store(), name)
		config, err := startup.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(startup.Harmless(string(config), branch)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// receive gets the objects of what is checked out, and sets the branch and the tags.
func (g git) receive(from git, h Heads, packs string) error {
	var refs bytes.Buffer
	known := map[string]bool{} // objects that the commit reaches
	if h.Commit != "" {
		fmt.Fprintf(&refs, "update %s %s\n", orHead(h.Branch), h.Commit)
		if err := g.history(from, h.Commit, packs); err != nil {
			return err
		}
		tree, err := from.run(nil, "ls-tree", "-r", "-z", h.Commit)
		if err != nil {
			return err
		}
		for entry := range strings.SplitSeq(string(tree), "\x00") {
			about, _, _ := strings.Cut(entry, "\t")
			known[about[strings.LastIndexByte(about, ' ')+1:]] = true
		}
	}
	objects := h.staged(known)
	for tag := range strings.SplitSeq(h.Tags, "\n") {
		if id, name, ok := strings.Cut(tag, " "); ok {
			objects = append(objects, id)
			fmt.Fprintf(&refs, "update %s %s\n", name, id)
		}
	}
	if len(objects) > 0 {
		if h.Commit != "" {
			objects = append(objects, "^"+h.Commit)
		}
		if err := from.pack(filepath.Join(g.store(), "objects", "pack"), objects, "-c", "core.fsync=none"); err != nil {
			return err
		}
	}
	if h.Branch != "" {
		if _, err := g.run(nil, "symbolic-ref", "HEAD", h.Branch); err != nil {
			return err
		}
	} else if _, err := g.run(nil, "update-ref", "--no-deref", "HEAD", h.Commit); err != nil {
		return err
	}
	_, err := g.run(refs.Bytes(), "update-ref", "--stdin")
	return err
}

// staged are the objects of the index that are not among known.
func (h Heads) staged(known map[string]bool) (ids []string) {
	for entry := range strings.SplitSeq(h.Index, "\x00") {
		mode, rest, _ := strings.Cut(entry, " ")
		// A submodule's commit is elsewhere.
		if id, _, ok := strings.Cut(rest, " "); ok && mode != "160000" && !known[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// pack packs objects, and what they reach, into a directory, if there are any.
func (g git) pack(dir string, objects []string, flags ...string) error {
	_, err := g.run([]byte(strings.Join(objects, "\n")+"\n"), append(flags, "pack-objects", "--revs", "--quiet",
		"--window=0", "--non-empty", "--use-bitmap-index", filepath.Join(dir, "pack"))...)
	return err
}

// history gets a commit, and all that it reaches. Its id decides what that is, so a pack that is kept serves every
// run that starts at the commit. It does not decide that in a shallow repository.
func (g git) history(from git, commit, packs string) error {
	to := filepath.Join(g.store(), "objects", "pack")
	if _, err := os.Lstat(filepath.Join(g.store(), "shallow")); packs == "" || err == nil {
		// A new repository can be made again: what is not on the disk after a crash is no loss.
		return from.pack(to, []string{commit}, "-c", "core.fsync=none")
	}
	kept := filepath.Join(packs, commit)
	if copyPacks(kept, to, commit) == nil {
		return nil
	}
	if err := workspace.Remove(kept); err != nil { // it is damaged, or does not exist
		return err
	}
	making, err := os.MkdirTemp(packs, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(making)
	if err := from.pack(making, []string{commit}); err != nil {
		return err
	}
	if err := copyPacks(making, to, commit); err != nil {
		return err
	}
	_ = os.Rename(making, kept) // fails if another run has kept it
	return prunePacks(packs)
}

// copyPacks copies the pack of a commit, which is then the latest used. If it is not whole, that is an error, and
// nothing is copied: programs that clean up, another run and errors of the disk can remove a part of it.
func copyPacks(from, to, commit string) (err error) {
	now := time.Now()
	if err := os.Chtimes(from, now, now); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	kinds, copies := map[string]bool{}, []string{}
	for _, e := range entries {
		at := filepath.Join(to, e.Name())
		kinds[filepath.Ext(at)], copies = true, append(copies, at)
		err = errors.Join(err, copyPack(filepath.Join(from, e.Name()), at, commit))
	}
	if err == nil && !(kinds[".pack"] && kinds[".idx"]) {
		err = fmt.Errorf("%s has no whole pack", from)
	}
	if err != nil {
		for _, at := range copies {
			_ = os.Remove(at)
		}
	}
	return err
}

// copyPack copies a file of a pack, and checks the sum at its end, which is as long as a commit's id.
func copyPack(from, to, commit string) error {
	in, err := os.OpenFile(from, startup.ReadFlags, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	sum := sha1.New()
	if len(commit) > 2*sha1.Size {
		sum = sha256.New()
	}
	_, err = io.CopyN(io.MultiWriter(out, sum), in, info.Size()-int64(sum.Size()))
	var end []byte
	if err == nil {
		end, err = io.ReadAll(in)
	}
	if err == nil {
		_, err = out.Write(end)
	}
	if err == nil && !bytes.Equal(end, sum.Sum(nil)) {
		err = fmt.Errorf("%s is damaged", from)
	}
	return errors.Join(err, out.Close())
}

// maxPacks is how much is kept in packs, in bytes, and packsMaking how long making one may take.
const (
	maxPacks    = 1 << 30
	packsMaking = time.Hour
)

// prunePacks removes packs until at most maxPacks is left: those first that were not used for the longest time.
func prunePacks(packs string) error {
	entries, err := os.ReadDir(packs)
	if err != nil {
		return err
	}
	type kept struct {
		path string
		used time.Time
	}
	var all []kept
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		at := filepath.Join(packs, e.Name())
		switch making := strings.HasPrefix(e.Name(), "new-"); {
		case err != nil: // another run has removed it
		case !making:
			all = append(all, kept{at, info.ModTime()})
		case time.Since(info.ModTime()) > packsMaking:
			errs = append(errs, os.RemoveAll(at))
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return b.used.Compare(a.used) })
	sum := int64(0)
	for _, k := range all {
		files, _ := filepath.Glob(filepath.Join(k.path, "*"))
		for _, file := range files {
			if info, err := os.Lstat(file); err == nil {
				sum += info.Size()
			}
		}
		if sum > maxPacks {
			errs = append(errs, os.RemoveAll(k.path))
		}
	}
	return errors.Join(errs...)
}

func orHead(branch string) string {
	if branch == "" {
		return "HEAD"
	}
	return branch
}

// compare is an error if the repository differs from the one that it was made from.
func (g git) compare(with git) error {
	status := []string{"status", "--porcelain", "-z", "--ignore-submodules=all"}
	want, err := with.run(nil, status...)
	if err != nil {
		return err
	}
	is, err := g.run(nil, status...)
	if err == nil && !bytes.Equal(is, want) {
		err = fmt.Errorf("its status is %.300q, and not %.300q", is, want)
	}
	return err
}
