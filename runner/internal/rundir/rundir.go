// Package rundir makes the directories for a run's sockets. They are in memory if possible: on a disk, making and
// removing one takes as long as the rest of a short run. If the run is killed, the next run removes its directory.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Dir is the directory of one run. It is in a directory of the user (its home) that contains those of all the user's
// runs. The run locks it; a directory without a lock was left by a dead run.
type Dir struct {
	Path string
	lock *os.File
}

// kind says which other users can pass through a directory.
type kind struct {
	suffix string      // suffix of the home's name
	mode   os.FileMode // of the home and of the directories in it
	roots  []string    // where the home may be
}

const (
	maxRoot  = 50 // bytes: with the names below it, a socket's path has at most 107
	maxHomes = 10 // names to try, in case others have taken the first
)

// private is for this user only.
func private() kind {
	return kind{"", 0o700, []string{os.Getenv("XDG_RUNTIME_DIR"), "/dev/shm", os.TempDir(), "/tmp"}}
}

// open is for other users too, if they know the directory's name.
func open() kind { return kind{"-open", 0o711, []string{"/dev/shm", os.TempDir(), "/tmp"}} }

// Kept returns the directory where this user's runs keep on a disk what the commands of other runs must not see. It
// makes the directory. Nothing removes it: a command from which it is hidden would see the next one.
func Kept() (string, error) {
	dir := filepath.Join("/var/tmp", fmt.Sprintf("assay-run-%d-kept", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, isOwnDir(dir, 0o700)
}

// New makes a directory that only this user can enter, and removes those of dead runs.
func New() (*Dir, error) { return private().make() }

// Open makes a directory that every user who knows its name can pass through. It removes those of dead runs.
func Open() (*Dir, error) { return open().make() }

// Sweep removes the directories of dead runs.
func Sweep() {
	for _, k := range []kind{private(), open()} {
		for _, home := range k.homes() {
			if isOwnDir(home, k.mode) == nil {
				sweep(home)
				os.Remove(home) // fails if there are live ones
			}
		}
	}
}

// Remove removes the directory, and its home if it was the last one.
func (d *Dir) Remove() error {
	if d == nil {
		return nil
	}
	err := os.RemoveAll(d.Path)
	d.lock.Close()
	os.Remove(filepath.Dir(d.Path))
	return err
}

// noted is the file in a run's directory with the paths of NoteCgroups, one per line.
const noted = "cgroups"

// NoteCgroups stores the paths of cgroup directories, the outermost first. If the run is killed, the sweep of its
// directory also removes those that are not in use.
func (d *Dir) NoteCgroups(dirs []string) error {
	return os.WriteFile(filepath.Join(d.Path, noted), []byte(strings.Join(dirs, "\n")), 0o600)
}

// removeNoted removes the cgroups that a dead run noted. It cannot remove other directories with files: only the
// kernel's own file systems allow rmdir of a directory that contains files.
func removeNoted(path string) {
	text, _ := os.ReadFile(filepath.Join(path, noted))
	for _, dir := range slices.Backward(strings.Split(string(text), "\n")) {
		if _, err := os.Lstat(filepath.Join(dir, "cgroup.events")); err == nil && filepath.IsAbs(dir) {
			_ = syscall.Rmdir(dir)
		}
	}
}

// homes lists the possible names of the home.
func (k kind) homes() (list []string) {
	for _, root := range k.roots {
		if !filepath.IsAbs(root) || len(root) > maxRoot {
			continue
		}
		for n := range maxHomes {
			home := filepath.Join(root, fmt.Sprintf("assay-run-%d%s", os.Getuid(), k.suffix))
			if n > 0 {
				home += fmt.Sprintf(".%d", n)
			}
			list = append(list, home)
		}
	}
	return list
}

// home finds or makes the home.
func (k kind) home() (home string, err error) {
	err = errors.New("no directory for temporary files has a short enough name")
	for _, home = range k.homes() {
		if err = os.Mkdir(home, 0o700); err == nil {
			return home, swept(os.Chmod(home, k.mode)) // regardless of the umask
		}
		if errors.Is(err, fs.ErrExist) {
			if err = isOwnDir(home, k.mode); err == nil {
				return home, nil
			}
		}
	}
	return "", err
}

var errSwept = errors.New("the directory was removed again")

func (k kind) make() (d *Dir, err error) {
	err = errSwept // another run has just removed or is just making it
	for try := 0; errors.Is(err, errSwept) && try < 100; try++ {
		var home string
		if home, err = k.home(); err == nil {
			sweep(home)
			d, err = k.claim(home)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make a directory for the run's sockets: %w", err)
	}
	return d, nil
}

// claim makes a directory and locks it. Until it is locked, another run's sweep may remove it.
func (k kind) claim(home string) (*Dir, error) {
	path, err := os.MkdirTemp(home, "")
	if err != nil {
		return nil, swept(err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, swept(err)
	}
	if err := os.Chmod(path, k.mode); err != nil {
		lock.Close()
		return nil, swept(err)
	}
	return &Dir{path, lock}, nil
}

func swept(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLocked) {
		return errSwept
	}
	return err
}

// sweep removes directories whose owner is dead.
func sweep(home string) {
	dirs, _ := os.ReadDir(home)
	for _, e := range dirs {
		path := filepath.Join(home, e.Name())
		if lock, err := lockDir(path); err == nil {
			removeNoted(path)
			os.RemoveAll(path)
			lock.Close()
		}
	}
}
