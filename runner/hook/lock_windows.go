package hook

import (
	"os"

	"golang.org/x/sys/windows"
)

const noFollow = 0

// lock waits until no other process holds the lock of the file.
func lock(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: 1 << 30} // beyond everything that is read
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &at)
}
