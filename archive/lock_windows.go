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

// heldByOther reports whether another holds the file's exclusive lock. Until it
// returns, it holds a lock that only others who ask share.
func heldByOther(f *os.File) bool {
	err := lock(f, 0)
	if err == nil {
		at := lockedByte
		_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
	}
	return errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

// lockedByte is far behind the end, so that everybody can still read the file.
var lockedByte = windows.Overlapped{OffsetHigh: 1 << 30}

func lock(f *os.File, how uint32) error {
	at := lockedByte
	return windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
}

// A directory's entries cannot be put on disk by themselves.
func syncOpenDir(*os.File) error { return nil }
