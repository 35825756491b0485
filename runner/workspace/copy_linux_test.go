package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestCopyKeeps(t *testing.T) {
	top := t.TempDir()
	from, to := filepath.Join(top, "from"), filepath.Join(top, "to")
	if err := os.Mkdir(from, 0o750); err != nil {
		t.Fatal(err)
	}
	sh(t, from, `echo x >a; ln a b; ln -s a l; mkfifo p; mkdir d; echo y >d/c; chmod 2755 d; chmod 4711 a
		truncate -s 1G holes; printf end >>holes; printf data | dd of=holes bs=1 seek=5000000 conv=notrunc status=none
		echo no >left-out; touch -d 2001-02-03 d/c; touch -h -d 2002-02-03 l; touch -d 2003-02-03 d`)
	if err := Copy(t.Context(), from, to, filepath.Join(from, "left-out")); err != nil {
		t.Fatal(err)
	}
	stat := func(dir, name string) *syscall.Stat_t {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		return &st
	}
	for _, name := range []string{".", "a", "b", "l", "p", "d", "d/c", "holes"} {
		a, b := stat(from, name), stat(to, name)
		if a.Mode != b.Mode || a.Mtim != b.Mtim || a.Uid != b.Uid || a.Size != b.Size && name != "." && name != "d" {
			t.Errorf("%s: mode %o, %d bytes, changed at %v; it was mode %o, %d bytes, changed at %v", name, b.Mode,
				b.Size,
				b.Mtim, a.Mode, a.Size, a.Mtim)
		}
	}
	if stat(to, "a").Ino != stat(to, "b").Ino {
		t.Error("a hard link became a file of its own")
	}
	if stat(to, "a").Ino == stat(from, "a").Ino {
		t.Error("the copy is the very file")
	}
	if n := stat(to, "holes").Blocks * 512; n > 8<<20 {
		t.Errorf("the file with holes takes %d bytes", n)
	}
	sh(t, top, "cmp from/holes to/holes; cmp from/d/c to/d/c; test ! -e to/left-out")
}

// meddling calls f when it is asked for its error.
type meddling struct {
	context.Context
	f func()
}

func (m meddling) Err() error {
	m.f()
	return m.Context.Err()
}

func TestCopyOfWhatChangesIsAnError(t *testing.T) {
	for name, meddle := range map[string]func(from string) error{
		"written":  func(from string) error { return os.WriteFile(filepath.Join(from, "z"), []byte("two"), 0o644) },
		"added":    func(from string) error { return os.WriteFile(filepath.Join(from, "new"), nil, 0o644) },
		"removed":  func(from string) error { return os.Remove(filepath.Join(from, "a")) },
		"replaced": func(from string) error { return os.Rename(filepath.Join(from, "z"), filepath.Join(from, "a")) },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			from, to := filepath.Join(top, "from"), filepath.Join(top, "to")
			if err := os.Mkdir(from, 0o755); err != nil {
				t.Fatal(err)
			}
			sh(t, from, "echo one >a; echo one >z")
			done := false
			err := Copy(meddling{t.Context(), func() {
				if _, err := os.Lstat(to); err != nil || done {
					return // nothing is copied yet
				}
				done = true
				if err := meddle(from); err != nil {
					t.Error(err)
				}
			}}, from, to)
			if !done {
				t.Fatal("nobody meddled")
			}
			if err == nil {
				t.Error("the copy is taken for one")
			}
			if err != nil && !errors.Is(err, errCopying) && !errors.Is(err, errChanging) && !os.IsNotExist(err) &&
				!strings.Contains(err.Error(), "no such file") {
				t.Errorf("another error: %v", err)
			}
		})
	}
}

// TestRemoveTakesWhatAnAgentLeft removes what os.RemoveAll cannot, and nothing that is mounted.
func TestRemoveTakesWhatAnAgentLeft(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount, and make files immutable")
	}
	top := t.TempDir()
	sh(t, top, `mkdir -p of/a/b "of/m n" of/a/n other; echo keep >other/kept; touch of/a/b/c; chmod 0 of/a/b
		chattr +i of/a/b/c of/a || echo immutable files are not known here >skip
		mount --bind other "of/m n"; mount -t tmpfs none of/a/n; mount --bind other of/a/n`)
	dir := filepath.Join(top, "of")
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(top, "other", "kept")); err != nil {
		t.Errorf("a file of a mounted directory was removed: %v", err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("again: %v", err)
	}
}
