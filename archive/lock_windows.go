package archive

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Windows has no such flags. Its pipes are not in the file system.
const noFollow, noWait = 0, 0

// flock takes the file's exclusive lock, or returns errLocked at once. The lock is held until the file is closed or the
// process dies.
func flock(f *os.File) error {
	if err := lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK); !errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return err
	}
	return errLocked
}

// heldByOther reports whether another open file holds the exclusive lock. It briefly takes a shared lock itself.
func heldByOther(f *os.File) bool {
	err := lock(f, 0)
	if err == nil {
		at := lockedByte
		_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
	}
	return errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

// lockedByte is far beyond the end of the file, since Windows blocks reads of locked bytes.
var lockedByte = windows.Overlapped{OffsetHigh: 1 << 30}

func lock(f *os.File, how uint32) error {
	at := lockedByte
	return windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
}

// syncOpenDir does nothing, since Windows cannot sync a directory.
func syncOpenDir(*os.File) error { return nil }
