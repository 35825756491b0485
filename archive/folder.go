package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// reserveBytes are reserved on the spool's disk during the run and freed when the disk is full, so that the end of the
// run can still be written.
const reserveBytes = 512 << 10

// folder is the directory of a spool: it makes the members' files, whatever others do in it, and keeps space for the
// end of the run. It is safe for concurrent use.
type folder struct {
	dir  string      // <spool dir>/<run id>
	full atomic.Bool // the disk was full: only the end of the run is written

	mu      sync.Mutex // guards what follows
	reserve bool       // the reserve is still held
	found   []Tampered // files of others at the path of a member
}

// newFolder returns the folder dir. reserve means that it has a reserve.
func newFolder(dir string, reserve bool) *folder { return &folder{dir: dir, reserve: reserve} }

// restoreReserve makes the reserve if there is none.
func (f *folder) restoreReserve() {
	name := filepath.Join(f.dir, reserveName)
	_, err := os.Lstat(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserve = err == nil || reserveSpace(name, reserveBytes) == nil
}

// freeReserve frees the reserved space. It reports false if that was done before. From then on, only the end of the run
// is written.
func (f *folder) freeReserve() bool {
	f.full.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.reserve {
		return false
	}
	f.reserve = false
	return os.Remove(filepath.Join(f.dir, reserveName)) == nil
}

// remove removes a member's file, as far as it is there.
func (f *folder) remove(path string) { _ = os.Remove(layerFile(f.dir, path)) }

// others returns the files of others that were at the path of a member.
func (f *folder) others() []Tampered {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.found)
}

// openFile opens a member's file, and makes its folder if necessary.
func (f *folder) openFile(path string, flag int) (*os.File, error) {
	file, err := f.create(layerFile(f.dir, path), flag)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return file, nil
}

// create opens a file in the spool for reading and writing. If somebody has deleted the spool, it makes a file without
// a name, so that the content can still be sealed.
func (f *folder) create(name string, flag int) (*os.File, error) {
	open := func() (*os.File, error) {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow|flag, 0o600)
	}
	file, err := open()
	if errors.Is(err, os.ErrExist) {
		f.planted(name)
		if err := os.RemoveAll(name); err != nil {
			return nil, err
		}
		file, err = open()
	}
	// Somebody can delete the spool or make it again between any two of these calls.
	raced := func() bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) }
	if raced() && isDir(f.dir) {
		if err = os.MkdirAll(filepath.Dir(name), 0o700); err == nil {
			file, err = open()
		}
	}
	if !raced() {
		return file, err
	}
	for _, dir := range []string{filepath.Dir(f.dir), os.TempDir()} {
		room, rerr := newScratch(dir)
		if rerr == nil {
			return room.f, nil
		}
		err = rerr
	}
	return nil, err
}

// planted notes that somebody else made a file at the path of a member.
func (f *folder) planted(name string) {
	rel, err := filepath.Rel(f.dir, name)
	if err != nil {
		rel = name
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found,
		Tampered{filepath.ToSlash(rel), "was there before the recorder wrote it; that file was removed"})
}

// rename renames a file, and makes the folder if necessary. If the spool was deleted, it does nothing.
func (f *folder) rename(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, os.ErrNotExist) {
		if _, gone := os.Lstat(f.dir); gone != nil {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		err = os.Rename(from, to)
	}
	return err
}

// newScratch makes a scratch file in the spool, or in os.TempDir if somebody deleted the spool.
func (f *folder) newScratch() (*scratch, error) {
	if !isDir(f.dir) {
		return newScratch("")
	}
	return newScratch(f.dir)
}

func isDir(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// reserveSpace creates a file with n bytes of disk space.
func reserveSpace(name string, n int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(allocate(f, n), f.Close())
}
