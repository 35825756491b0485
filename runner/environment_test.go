package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/specfile"
)

func TestLookPathFindsWhatExecvpWould(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode fs.FileMode) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("a/tool", 0o755)
	write("b/tool", 0o755)
	write("b/plain", 0o644)
	write("here", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "a", "plain"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + filepath.Join(dir, "a") + ":" + filepath.Join(dir, "b")
	for name, c := range map[string]struct {
		name string
		env  []string
		want string
		err  error
	}{
		"the first directory that has it": {"tool", []string{path}, filepath.Join(dir, "a/tool"), nil},
		"a later PATH wins":               {"tool", []string{"PATH=/nowhere", path}, filepath.Join(dir, "a/tool"), nil},
		"a name with a slash as it is":    {"./x/y", []string{path}, "./x/y", nil},
		"relative entries in the workdir": {"tool", []string{"PATH=b"}, "b/tool", nil},
		"an empty entry is the workdir":   {"here", []string{"PATH=:/nowhere"}, "./here", nil},
		"not executable":                  {"plain", []string{path}, "", fs.ErrPermission},
		"nowhere":                         {"absent", []string{path}, "", fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := lookPath(c.name, dir, c.env)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestEnvironOverridesAndMarks(t *testing.T) {
	t.Setenv("KEPT", "1")
	t.Setenv("REPLACED", "old")
	t.Setenv(agents.EnvRun, "the run around this one")
	s := specfile.New("x")
	s.RunID = "run_1"
	s.Env = map[string]string{"REPLACED": "new", "ADDED": "2"}
	env := environ(s)
	for _, want := range []string{"KEPT=1", "REPLACED=new", "ADDED=2", agents.EnvRun + "=run_1"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, not := range []string{"REPLACED=old", agents.EnvRun + "=the run around this one"} {
		if slices.Contains(env, not) {
			t.Errorf("%s is still there", not)
		}
	}
}

func TestStartFailureSortsByWhoseFaultItIs(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		err  error
		dir  string
		code string
		exit int
	}{
		{syscall.ENOENT, dir, "command_not_found", 127},
		{syscall.ENOTDIR, dir, "command_not_found", 127},
		{syscall.EACCES, dir, "command_not_executable", 126},
		{syscall.ENOEXEC, dir, "command_not_executable", 126},
		{syscall.E2BIG, dir, "command_not_executable", 126},
		{syscall.EAGAIN, dir, "start_failed", 125},
		{syscall.ENOENT, filepath.Join(dir, "gone"), "workdir_unusable", 125},
	} {
		_, exit, e := startFailure("cmd", c.dir, &fs.PathError{Op: "fork/exec", Path: "cmd", Err: c.err})
		if e.Code != c.code || exit != c.exit {
			t.Errorf("%v in %s: %s, %d; want %s, %d", c.err, c.dir, e.Code, exit, c.code, c.exit)
		}
	}
}
