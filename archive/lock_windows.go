package archive

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Windows opens no symbolic link otherwise than its target, and its pipes have names of
// their own.
const noFollow, noWait = 0, 0

// flock takes the file's exclusive lock without waiting. The lock lives until
// the file is closed or the process dies.
func flock(f *os.File) error {
	if err := lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK); !errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return err
	}
	return errLocked
}

// heldByOther tells whether another holds the file's exclusive lock.
func heldByOther(f *os.File) bool { return errors.Is(lock(f, 0), windows.ERROR_LOCK_VIOLATION) }

// lock locks a byte far behind the end, so that everybody can still read the file.
func lock(f *os.File, how uint32) error {
	at := windows.Overlapped{OffsetHigh: 1 << 30}
	return windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
}

// A directory's entries cannot be put on disk by themselves.
func syncOpenDir(*os.File) error { return nil }
