package rpc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// socketDir is a 0700 directory for one socket, in one of the user's own that
// has those of all runs. Its owner holds a lock on it, so that the next one can
// tell those of dead owners and remove them.
type socketDir struct {
	path string
	lock *os.File
}

const (
	socketName   = "gateway"
	maxSocketDir = 60 // bytes of the root's path: a socket's has at most 107
	maxHomes     = 10 // names that are tried, should others have taken the first
)

// socketRoots are where the user's directory may be, in memory if possible: on a
// disk, making and removing it takes as long as all the rest of a short run.
func socketRoots() []string {
	var roots []string
	for _, d := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/dev/shm", os.TempDir(), "/tmp"} {
		if filepath.IsAbs(d) && len(d) < maxSocketDir {
			roots = append(roots, d)
		}
	}
	return roots
}

// socketHome finds or makes the user's directory.
func socketHome() (home string, err error) {
	for _, root := range socketRoots() {
		for n := range maxHomes {
			home = filepath.Join(root, fmt.Sprintf("assay-run-%d", os.Getuid()))
			if n > 0 {
				home += fmt.Sprintf(".%d", n)
			}
			if err = os.Mkdir(home, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
				if err = isOwnDir(home); err == nil {
					return home, nil
				}
				continue // someone else's, who may not be trusted with it
			}
			break
		}
	}
	return "", err
}

var errSwept = errors.New("the directory was removed again")

// newSocketDir makes a directory, and removes those that dead owners left.
func newSocketDir() (*socketDir, error) {
	var home string
	var d *socketDir
	err := errSwept // the end of another run, or its beginning, came between
	for try := 0; errors.Is(err, errSwept) && try < 100; try++ {
		if home, err = socketHome(); err == nil {
			sweepSocketDirs(home)
			d, err = claimSocketDir(home)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make a directory for the gateway's socket: %w", err)
	}
	return d, nil
}

// claimSocketDir makes a directory and locks it. Until it is locked another
// run's sweep may take it for left; from then on it is there to stay.
func claimSocketDir(home string) (*socketDir, error) {
	path, err := os.MkdirTemp(home, "")
	if err != nil {
		return nil, swept(err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, swept(err)
	}
	if _, err := os.Lstat(path); err != nil {
		lock.Close()
		return nil, swept(err)
	}
	return &socketDir{path, lock}, nil
}

func swept(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLocked) {
		return errSwept
	}
	return err
}

// Sweep removes the socket directories of runs that were killed. The next run
// does the same.
func Sweep() {
	for _, root := range socketRoots() {
		homes, _ := filepath.Glob(filepath.Join(root, fmt.Sprintf("assay-run-%d*", os.Getuid())))
		for _, home := range homes {
			if isOwnDir(home) == nil {
				sweepSocketDirs(home)
				os.Remove(home) // unless there are live ones
			}
		}
	}
}

// sweepSocketDirs removes directories whose owner died.
func sweepSocketDirs(home string) {
	dirs, _ := os.ReadDir(home)
	for _, e := range dirs {
		path := filepath.Join(home, e.Name())
		if lock, err := lockDir(path); err == nil {
			os.RemoveAll(path)
			lock.Close()
		}
	}
}

func (d *socketDir) socket() string { return filepath.Join(d.path, socketName) }

// remove removes it, and the user's directory after the last one.
func (d *socketDir) remove() error {
	if d == nil {
		return nil
	}
	err := os.RemoveAll(d.path)
	d.lock.Close()
	os.Remove(filepath.Dir(d.path))
	return err
}
