package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitIn runs git in a directory, without the user's configuration.
func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org",
		"-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, said)
	}
}

func TestReturnChangesNothingThatTheCommandLinkedTo(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sub, work, victim := filepath.Join(root, "sub"), filepath.Join(root, "work"), filepath.Join(root, "victim")
	for _, dir := range []string{sub, work} {
		gitIn(t, root, "init", "--quiet", dir)
		gitIn(t, dir, "commit", "--quiet", "--allow-empty", "-m", "first")
	}
	gitIn(t, work, "submodule", "--quiet", "add", sub, "sub")
	gitIn(t, work, "commit", "--quiet", "-m", "second")
	files := []string{"config", "hooks/pre-commit", "worktrees/a", "info/alternates", "info/grafts", "replace/a"}
	for name, linked := range map[string]string{"the submodule's repository": "modules/sub", "a directory": "modules",
		"objects": "objects", "references": "refs", "info": "info"} {
		t.Run(name, func(t *testing.T) {
			for _, file := range files {
				at := filepath.Join(victim, file)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte("precious"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.MkdirAll(filepath.Join(victim, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			book, err := Close(t.Context(), work, filepath.Join(t.TempDir(), "git"))
			if err != nil {
				t.Fatal(err)
			}
			if err := book.Make(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(book.Store, linked)
			if err := os.RemoveAll(at); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(victim, at); err != nil {
				t.Fatal(err)
			}
			if _, err := book.Return(t.Context(), "run_x"); err == nil {
				t.Error("the link was not noticed")
			}
			for _, file := range files {
				data, err := os.ReadFile(filepath.Join(victim, file))
				if err != nil || string(data) != "precious" {
					t.Errorf("%s is %q now, %v", file, data, err)
				}
			}
			if _, err := os.Lstat(filepath.Join(victim, "sub/config")); err == nil {
				t.Error("a configuration was written where the link leads to")
			}
		})
	}
}

func TestReturnBringsCommitsOfSubmodulesBack(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sub, work := filepath.Join(root, "sub"), filepath.Join(root, "work")
	for _, dir := range []string{sub, work} {
		gitIn(t, root, "init", "--quiet", dir)
		gitIn(t, dir, "commit", "--quiet", "--allow-empty", "-m", "first")
	}
	gitIn(t, work, "submodule", "--quiet", "add", sub, "sub")
	gitIn(t, work, "commit", "--quiet", "-m", "second")
	book, err := Close(t.Context(), work, filepath.Join(root, "store", "git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := book.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, of := range append(book.Modules, book) {
		gitIn(t, of.Dir, "--git-dir="+of.Store, "--work-tree="+of.Dir, "commit", "--quiet", "--allow-empty",
			"-m", "third")
	}
	if aside, err := book.Return(t.Context(), "run_x"); err != nil || len(aside) > 0 {
		t.Fatal(aside, err)
	}
	for _, dir := range []string{work, filepath.Join(work, "sub")} {
		said, err := exec.Command("git", "-C", dir, "log", "-1", "--format=%s").CombinedOutput()
		if err != nil || strings.TrimSpace(string(said)) != "third" {
			t.Errorf("%s has %q, %v", dir, said, err)
		}
	}
}

func TestASplitIndexIsKept(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(root, "work")
	gitIn(t, root, "init", "--quiet", work)
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(work, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gitIn(t, work, "add", "a")
	gitIn(t, work, "commit", "--quiet", "-m", "first")
	gitIn(t, work, "update-index", "--split-index")
	book, err := Close(t.Context(), work, filepath.Join(root, "store", "git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := book.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	of := []string{"--git-dir=" + book.Store, "--work-tree=" + work}
	gitIn(t, work, append(of, "add", "b")...)
	if err := os.WriteFile(filepath.Join(book.Store, "index.lock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := book.Return(t.Context(), "run_x"); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("git", "-C", work, "ls-files").CombinedOutput()
	if err != nil || string(said) != "a\nb\n" {
		t.Errorf("the index has %q, %v", said, err)
	}
}
