package archive

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// errLocked is returned by flock when another open file holds the lock.
var errLocked = errors.New("locked by another process")

// noFollow refuses a symbolic link as the last part of a path.
const noFollow = unix.O_NOFOLLOW

// flock takes the file's exclusive lock without waiting. The lock lives until
// the file is closed or the process dies.
func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EWOULDBLOCK:
			return errLocked
		}
		return err
	}
}

// sameFile tells whether name still is the open file f: a lock on a file that
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

func syncOpenDir(d *os.File) error {
	err := d.Sync()
	// Some network file systems have no fsync for directories.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// isOld tells that a file was not touched for a minute.
func isOld(info os.FileInfo) bool { return time.Since(info.ModTime()) > time.Minute }

// isLocked tells whether a process that lives holds the file.
func isLocked(name string) bool {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// Alive tells whether a process that lives holds the spool in dir.
func Alive(dir string) bool { return isLocked(filepath.Join(dir, schema.RunPath)) }
