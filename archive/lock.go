package archive

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// errLocked is returned by flock when another open file holds the lock.
var errLocked = errors.New("locked by another process")

// sameFile reports whether name still is the open file f: a lock on a file that
// was renamed or removed meanwhile protects nothing.
func sameFile(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// syncDir puts a directory's entries on disk.
func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncOpenDir(d), d.Close())
}

// isOld reports whether a file was not touched for a minute.
func isOld(info os.FileInfo) bool { return time.Since(info.ModTime()) > time.Minute }

// isLocked reports whether a process that lives holds the file.
func isLocked(name string) bool {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	return heldByOther(f)
}

// Alive reports whether a process that lives holds the spool in dir.
func Alive(dir string) bool { return isLocked(filepath.Join(dir, schema.RunPath)) }
