//go:build linux

package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/assay-run/assay-run/cgroup/tree"
)

// TestSocketDirectoryAmongStrangers: what others put where the user's directory would be is not used, and the run
// still gets its socket.
func TestSocketDirectoryAmongStrangers(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	t.Setenv("XDG_RUNTIME_DIR", root)
	name := fmt.Sprintf("%s/assay-run-%d", root, os.Getuid())
	for i, plant := range []func(path string) error{
		func(p string) error { return os.Mkdir(p, 0o777) },
		func(p string) error { return os.WriteFile(p, nil, 0o600) },
		func(p string) error { return os.Symlink(t.TempDir(), p) },
	} {
		path := name
		if i > 0 {
			path += fmt.Sprintf(".%d", i)
		}
		if err := errors.Join(plant(path), os.Chmod(path, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if got := filepath.Dir(d.Path); got != name+".3" {
		t.Errorf("used %s", got)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(root); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
}

// TestSocketDirectoriesOfManyRuns: runs that start and end at the same time sweep and remove around each other, and
// none loses its directory.
func TestSocketDirectoriesOfManyRuns(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	t.Setenv("XDG_RUNTIME_DIR", root)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				d, err := New()
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(d.Path, "socket"), nil, 0o600); err != nil {
					t.Error(err)
				}
				if err := d.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left, _ := os.ReadDir(root); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestStaleSocketDirectoriesAreRemovedAndLiveOnesAreNot(t *testing.T) {
	root := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", root)
	live, err := New()
	if err != nil {
		t.Fatal(err)
	}
	dead, err := New()
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as if its process had died
	other, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead.Path); !os.IsNotExist(err) {
		t.Errorf("the dead owner's directory is there: %v", err)
	}
	for _, d := range []*Dir{live, other} {
		if info, err := os.Stat(d.Path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		d.Remove()
	}
}

// A directory for others is swept like any other, and so is its home, which contains nothing that others could read
// or change.
func TestOpenDirectories(t *testing.T) {
	dead, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dead.Path, filepath.Dir(dead.Path)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o711 {
			t.Errorf("%v, %v", info, err)
		}
	}
	dead.lock.Close() // as if its process had died
	Sweep()
	if _, err := os.Stat(dead.Path); !os.IsNotExist(err) {
		t.Errorf("the dead owner's directory is there: %v", err)
	}
}

// A root whose name is too long for a socket is not used.
func TestNoDirectoryBelowALongName(t *testing.T) {
	root := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", root)
	t.Setenv("TMPDIR", root)
	for _, make := range []func() (*Dir, error){New, Open} {
		d, err := make()
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(d.Path, root) {
			t.Errorf("it is %s", d.Path)
		}
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// A cgroup that a dead run noted is removed if it is unused. Nothing else is removed.
func TestNotedCgroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	root, err := os.MkdirTemp("/dev/shm", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	t.Setenv("XDG_RUNTIME_DIR", root)
	at, err := tree.Of(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	group := filepath.Join(at, filepath.Base(root))
	inner, plain := filepath.Join(group, "inner"), filepath.Join(root, "plain")
	defer os.Remove(group)
	defer os.Remove(inner)
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(group, 0o755), os.Mkdir(inner, 0o755), os.Mkdir(plain, 0o755),
		d.NoteCgroups([]string{group, inner, plain, ""})); err != nil {
		t.Fatal(err)
	}
	Sweep()
	if _, err := os.Stat(inner); err != nil {
		t.Errorf("it sweeps what a live run noted: %v", err)
	}
	d.lock.Close() // as if it had been killed
	Sweep()
	for _, gone := range []string{inner, group, d.Path} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
	if _, err := os.Stat(plain); err != nil {
		t.Errorf("a directory that is no cgroup is gone: %v", err)
	}
}
