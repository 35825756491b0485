package repository

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
			if err := book.Make(t.Context(), t.TempDir()); err != nil {
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
	if err := book.Make(t.Context(), t.TempDir()); err != nil {
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
	if err := book.Make(t.Context(), t.TempDir()); err != nil {
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

// made makes the book of a directory, and returns its objects.
func made(t *testing.T, dir, packs string) (*Book, string) {
	t.Helper()
	book, err := Close(t.Context(), dir, filepath.Join(t.TempDir(), "git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := book.Make(t.Context(), packs); err != nil {
		t.Fatal(err)
	}
	objects, err := book.git(t.Context()).line("cat-file", "--batch-all-objects", "--batch-check")
	if err != nil {
		t.Fatal(err)
	}
	return book, objects
}

func TestABookHasTheHistoryThatItsCommitsName(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "init", "--quiet", "--initial-branch=main")
	gitIn(t, dir, "commit", "--quiet", "--allow-empty", "-m", "first")
	gitIn(t, dir, "commit", "--quiet", "--allow-empty", "-m", "second")
	_, before := made(t, dir, t.TempDir())
	gitIn(t, dir, "switch", "--quiet", "-c", "fix")
	gitIn(t, dir, "commit", "--quiet", "--allow-empty", "-m", "the fix")
	gitIn(t, dir, "tag", "fixed")
	gitIn(t, dir, "switch", "--quiet", "main")
	gitIn(t, dir, "replace", "--graft", "main~1", "fix")
	if _, after := made(t, dir, t.TempDir()); after != before {
		t.Errorf("replaced parents add objects:\n%s\nwithout them:\n%s", after, before)
	}
	gitIn(t, dir, "replace", "-d", "main~1")
	first, _ := git{ctx: t.Context(), dir: dir}.line("rev-parse", "main~1")
	fix, _ := git{ctx: t.Context(), dir: dir}.line("rev-parse", "fix")
	graft := filepath.Join(dir, ".git/info/grafts")
	if err := os.WriteFile(graft, []byte(first+" "+fix+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	book, after := made(t, dir, t.TempDir())
	if after != before {
		t.Errorf("grafts add objects:\n%s\nwithout them:\n%s", after, before)
	}
	gitIn(t, dir, "--git-dir="+book.Store, "log")
}

func TestAKeptPackServesOneCommit(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packs := t.TempDir()
	gitIn(t, dir, "init", "--quiet")
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "add", "f")
	gitIn(t, dir, "commit", "--quiet", "-m", "first")
	book, cold := made(t, dir, packs)
	kept := filepath.Join(packs, book.Commit)
	info, err := os.Stat(kept)
	if err != nil {
		t.Fatal(err)
	}
	// What is staged, and its tags, are of one run.
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "add", "f")
	gitIn(t, dir, "tag", "-a", "-m", "a", "a")
	warm, objects := made(t, dir, packs)
	if n := strings.Count(objects, "\n") - strings.Count(cold, "\n"); n != 2 {
		t.Errorf("%d objects more, want the staged file and the tag:\n%s", n, objects)
	}
	gitIn(t, dir, "--git-dir="+warm.Store, "fsck", "--strict")
	if again, err := os.Stat(kept); err != nil || !os.SameFile(info, again) {
		t.Errorf("the pack was made again: %v", err)
	}
	gitIn(t, dir, "reset", "--quiet", "--hard")
	gitIn(t, dir, "commit", "--quiet", "--allow-empty", "-m", "second")
	shallow := filepath.Join(t.TempDir(), "shallow")
	gitIn(t, dir, "clone", "--quiet", "--depth=1", "file://"+dir, shallow)
	short, _ := made(t, shallow, packs)
	if _, err := os.Stat(filepath.Join(packs, short.Commit)); err == nil {
		t.Error("the pack of a shallow repository was kept")
	}
	if _, whole := made(t, dir, packs); !strings.Contains(whole, book.Commit) {
		t.Errorf("the first commit is not in the book of the second:\n%s", whole)
	}
}

// TestAKeptPackThatIsDamagedIsMadeAgain damages each file of a kept pack as programs that clean up, another run, a
// full disk and errors of the disk do.
func TestAKeptPackThatIsDamagedIsMadeAgain(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		gitIn(t, dir, "init", "--quiet", "--object-format="+format)
		if err := os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("1"), 100), 0o644); err != nil {
			t.Fatal(err)
		}
		gitIn(t, dir, "add", "f")
		gitIn(t, dir, "commit", "--quiet", "-m", "first")
		packs := t.TempDir()
		book, want := made(t, dir, packs)
		kept := filepath.Join(packs, book.Commit)
		for name, damage := range map[string]func(path string, data []byte) error{
			"removed":   func(path string, _ []byte) error { return os.Remove(path) },
			"truncated": func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)/2], 0o644) },
			"empty":     func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o644) },
			"changed": func(path string, data []byte) error {
				data[len(data)/2]++
				return os.WriteFile(path, data, 0o644)
			},
			"a directory": func(path string, _ []byte) error {
				return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
			},
			"beside another": func(path string, _ []byte) error {
				return os.Mkdir(filepath.Join(filepath.Dir(path), "other"), 0o755)
			},
			"gone with all": func(path string, _ []byte) error {
				return errors.Join(os.RemoveAll(filepath.Dir(path)), os.Mkdir(filepath.Dir(path), 0o755))
			},
			"in place of the directory": func(path string, _ []byte) error {
				return errors.Join(os.RemoveAll(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), nil, 0o644))
			},
		} {
			for _, ext := range []string{".pack", ".idx"} {
				path := filepath.Join(kept, mustGlob(t, filepath.Join(kept, "*"+ext)))
				data, err := os.ReadFile(path)
				if err == nil {
					err = os.Chmod(path, 0o644)
				}
				if err == nil {
					err = damage(path, data)
				}
				if err != nil {
					t.Fatal(err)
				}
				again, objects := made(t, dir, packs)
				if objects != want {
					t.Errorf("%s: %s is %s: the book has\n%swant\n%s", format, ext, name, objects, want)
				}
				gitIn(t, dir, "--git-dir="+again.Store, "fsck", "--strict")
				if err := copyPacks(kept, t.TempDir(), book.Commit); err != nil {
					t.Errorf("%s: %s is %s: afterwards: %v", format, ext, name, err)
				}
			}
		}
	}
}

// mustGlob returns the base name of the only file that a pattern matches.
func mustGlob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatal(pattern, found, err)
	}
	return filepath.Base(found[0])
}

func TestABookInTheMiddleOfARebase(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "init", "--quiet", "--initial-branch=main")
	for _, name := range []string{"first", "second", "third"} {
		gitIn(t, dir, "commit", "--quiet", "--allow-empty", "-m", name)
	}
	gitIn(t, dir, "-c", "sequence.editor=sed -i 1s/pick/edit/", "rebase", "--quiet", "--keep-empty", "-i", "HEAD~2")
	gitIn(t, dir, "config", "filter.lfs.clean", "git-lfs clean -- %f")
	book, objects := made(t, dir, t.TempDir())
	if n := strings.Count(objects, " commit "); n != 2 {
		t.Errorf("%d commits are in the book, want those before the third:\n%s", n, objects)
	}
	if config, _ := os.ReadFile(filepath.Join(book.Store, "config")); strings.Contains(string(config), "lfs") {
		t.Errorf("the filter is in the book: %s", config)
	}
	gitIn(t, dir, "--git-dir="+book.Store, "commit", "--quiet", "--allow-empty", "-m", "of the command")
	if aside, err := book.Return(t.Context(), "run_x"); err != nil || len(aside) > 0 {
		t.Fatal(aside, err)
	}
	gitIn(t, dir, "rebase", "--continue")
	said, err := git{ctx: t.Context(), dir: dir}.line("log", "--format=%s", "main")
	if want := "third\nof the command\nsecond\nfirst"; err != nil || said != want {
		t.Errorf("the branch has %q, want %q: %v", said, want, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git/MERGE_HEAD"), []byte(book.Commit), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Close(t.Context(), dir, t.TempDir()); !errors.Is(err, ErrUnclosable) {
		t.Errorf("a merge: %v", err)
	}
}

func TestPacksThatWereNotUsedGoFirst(t *testing.T) {
	packs := t.TempDir()
	for i, name := range []string{"old", "new", "new-left", "new-making"} {
		at := filepath.Join(packs, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "pack"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(at, "pack"), maxPacks-1); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(time.Duration(i-3) * packsMaking)
		if err := os.Chtimes(at, used, used); err != nil {
			t.Fatal(err)
		}
	}
	if err := prunePacks(packs); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(packs)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if got := strings.Join(left, " "); got != "new new-making" {
		t.Errorf("%s are left", got)
	}
}
