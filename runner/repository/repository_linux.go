package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

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
// [git.harmless].
var gitStartsNothing = []string{
	"-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
	"-c", "protocol.allow=never",
}

// harmless refuses a repository whose own configuration makes git start programs when its files are compared: an agent
// may have made it.
func (g git) harmless() error {
	found, err := g.line("config", "--show-scope", "--name-only", "--get-regexp",
		`^(filter\..*|diff\..*\.(textconv|command)|extensions\.partialclone|remote\..*\.(promisor|uploadpack))$`)
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
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C")
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
	h.Branch, _ = g.line("symbolic-ref", "--quiet", "HEAD")
	h.Commit, _ = g.line("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
	if h.Index, err = g.line("ls-files", "--stage", "-z"); err != nil || h.Commit == "" {
		return h, err
	}
	h.Tags, err = g.line("for-each-ref", "--merged=HEAD", "--format=%(objectname) %(refname)", "refs/tags")
	return h, err
}

// unfinished are files of a repository in the middle of a command, whose state Make cannot keep.
var unfinished = []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG"}

// Describe describes what Make makes of the repository of a directory. It is an error if that would
// not be all.
func Describe(dir string) (Heads, error) {
	return describe(git{ctx: context.Background(), dir: dir})
}

func describe(g git) (Heads, error) {
	if err := g.harmless(); err != nil {
		return Heads{}, err
	}
	h, err := g.heads()
	if err != nil {
		return h, err
	}
	paths, err := g.paths(unfinished...)
	if err != nil {
		return h, err
	}
	for i, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return h, fmt.Errorf("git is in the middle of a command there (%s): finish it or abort it", unfinished[i])
		}
	}
	return h, nil
}

// Make makes the directory to, a copy of the directory from, a git repository of its own: at the same commit
// and branch, with the same index, configuration and hooks, and with the commit's history and its tags. Other branches,
// stashes and logs are not in it.
func Make(ctx context.Context, from, to string) error {
	source, target := git{ctx: ctx, dir: from}, git{ctx: ctx, dir: to}
	if err := source.harmless(); err != nil {
		return err
	}
	h, err := source.heads()
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
	if err := remake(source, target, h, format, false); err != nil {
		return err
	}
	return target.compare(source)
}

// remake makes the target's repository, with objects in the given format. harmless leaves out what makes git start
// programs, and remotes.
func remake(source, target git, h Heads, format string, harmless bool) error {
	if _, err := target.run(nil, "init", "--quiet", "--template=", "--object-format="+format); err != nil {
		return err
	}
	names := []string{"config", "config.worktree", "shallow", "index", "info", "hooks"}
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
		configure = target.disarm
	}
	if err := configure(); err != nil {
		return err
	}
	return target.receive(source, h)
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

// disarm keeps of a copied configuration what is harmless, and not about the place of the original.
func (g git) disarm() error {
	for _, name := range []string{"config", "config.worktree"} {
		path := filepath.Join(g.store(), name)
		config, err := startup.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(startup.Harmless(string(config))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// receive gets the objects of what is checked out, and sets the branch and the tags.
func (g git) receive(from git, h Heads) error {
	var objects, refs bytes.Buffer
	if h.Commit != "" {
		fmt.Fprintln(&objects, h.Commit)
		fmt.Fprintf(&refs, "update %s %s\n", orHead(h.Branch), h.Commit)
	}
	for entry := range strings.SplitSeq(h.Index, "\x00") {
		mode, rest, _ := strings.Cut(entry, " ")
		if id, _, ok := strings.Cut(rest, " "); ok && mode != "160000" { // a submodule's commit is elsewhere
			fmt.Fprintln(&objects, id)
		}
	}
	for tag := range strings.SplitSeq(h.Tags, "\n") {
		if id, name, ok := strings.Cut(tag, " "); ok {
			fmt.Fprintln(&objects, id)
			fmt.Fprintf(&refs, "update %s %s\n", name, id)
		}
	}
	pack := filepath.Join(g.store(), "objects", "pack", "pack")
	// A new repository can be made again: what is not packed well, or not on the disk after a crash, is no loss.
	if _, err := from.run(objects.Bytes(), "-c", "core.fsync=none", "pack-objects", "--revs", "--quiet", "--window=0",
		pack); err != nil {
		return err
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
