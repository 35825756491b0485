package archive

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	noFollow = unix.O_NOFOLLOW
	noWait   = unix.O_NONBLOCK // for files that may be pipes
)

// flock takes the file's exclusive lock, or returns errLocked at once. The lock is held until the file is closed or the
// process dies.
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

// heldByOther reports whether another open file holds the exclusive lock. It briefly takes a shared lock itself.
func heldByOther(f *os.File) bool {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	return err == unix.EWOULDBLOCK
}

func syncOpenDir(d *os.File) error {
	err := d.Sync()
	// Some network file systems have no fsync for directories.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
