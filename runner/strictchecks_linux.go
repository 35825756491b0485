package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// strictChecks gives each check of a contract directories of its own, empty at its
// start, so that nothing which the command left decides its result.
type strictChecks struct {
	env     []string // what is clean of the run's environment
	user    func() *sandbox.User
	outlive func(dir string) // removes it if we cannot
	root    string           // of all checks; empty before the first
}

// inherited are the variables of our environment that a strict check gets. Those with
// an underscore at the end stand for all that begin so.
var inherited = []string{"PATH", "LANG", "LANGUAGE", "LC_", "TZ", "USER", "LOGNAME", "SHELL", envRunID}

// newStrictChecks is nil unless the spec asks for strict checks.
func newStrictChecks(spec *Spec, outlive func(dir string), user func() *sandbox.User) *strictChecks {
	if !spec.StrictChecks {
		return nil
	}
	s := &strictChecks{user: user, outlive: outlive}
	for _, kv := range spec.environ() {
		key, _, _ := strings.Cut(kv, "=")
		_, set := spec.Env[key]
		if set || slices.ContainsFunc(inherited, func(k string) bool { return k == key || strings.HasSuffix(k, "_") && strings.HasPrefix(key, k) }) {
			s.env = append(s.env, kv)
		}
	}
	return s
}

// directories are the variables that name one, below that of a check. Tools which
// keep a cache beside the sources are told to keep it there.
var directories = []struct{ variable, dir string }{
	{"HOME", "home"},
	{"XDG_CONFIG_HOME", "config"}, {"XDG_CACHE_HOME", "cache"}, {"XDG_DATA_HOME", "data"}, {"XDG_STATE_HOME", "state"}, {"XDG_RUNTIME_DIR", "runtime"},
	{"TMPDIR", "tmp"}, {"TMP", "tmp"}, {"TEMP", "tmp"},
	{"PYTHONPYCACHEPREFIX", "cache/python"}, {"MYPY_CACHE_DIR", "cache/mypy"}, {"RUFF_CACHE_DIR", "cache/ruff"}, {"npm_config_cache", "cache/npm"},
}

// open makes the directories of a check, and the environment that names them.
func (s *strictChecks) open() (dir string, env []string, err error) {
	uid, gid := -1, -1
	if u := s.user(); u != nil {
		uid, gid = u.UID, u.GID
	}
	if s.root == "" {
		root, err := os.MkdirTemp("", "assay-run-checks-*")
		if err != nil {
			return "", nil, fmt.Errorf("make directories for it: %w", err)
		}
		s.root = root
		s.outlive(filepath.Join(root, "of")) // and then root
		err = errors.Join(os.Mkdir(filepath.Join(root, "of"), 0o711), os.Chmod(root, 0o711))
		if err != nil {
			return "", nil, fmt.Errorf("make directories for it: %w", err)
		}
	}
	if dir, err = os.MkdirTemp(filepath.Join(s.root, "of"), ""); err != nil {
		return "", nil, fmt.Errorf("make directories for it: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", nil, fmt.Errorf("make directories for it: %w", err)
	}
	own := map[string]string{}
	for _, d := range directories {
		own[d.variable] = filepath.Join(dir, d.dir)
		if !strings.Contains(d.dir, "/") { // the others are their tools' to make
			err = errors.Join(err, mkdirFor(own[d.variable], uid, gid))
		}
	}
	if err = errors.Join(err, os.Chown(dir, uid, gid)); err != nil {
		return "", nil, fmt.Errorf("make directories for it: %w", err)
	}
	for _, kv := range s.env {
		key, _, _ := strings.Cut(kv, "=")
		if own[key] == "" {
			env = append(env, kv)
		}
	}
	for _, d := range directories {
		env = append(env, d.variable+"="+own[d.variable])
	}
	return dir, env, nil
}

func mkdirFor(dir string, uid, gid int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return os.Chown(dir, uid, gid)
}

// close removes a check's directory. A tool may have made directories there that
// nobody can write, as Go's module cache has.
func (s *strictChecks) close(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	root.Close()
	_ = os.RemoveAll(dir)
}

// end removes what is left when no check will come.
func (s *strictChecks) end() {
	if s != nil && s.root != "" {
		s.close(s.root)
	}
}

// covers tells whether a strict check saw a directory of its own where path is.
func (s *strictChecks) covers(path, workdir string) bool {
	for _, dir := range sandbox.Temporary {
		if rest, in := strings.CutPrefix(path, dir+"/"); in {
			top, _, _ := strings.Cut(rest, "/")
			return !sandbox.Below(workdir, filepath.Join(dir, top))
		}
	}
	return false
}

// decisive are the kinds of influence that turn a strict check.
func decisive(kind string) bool {
	return kind == schema.InfluenceConfiguration || kind == schema.InfluenceCache
}
