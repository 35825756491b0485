package archive

import (
	"errors"
	"os"
)

// errLocked is returned by flock if another open file holds the lock.
var errLocked = errors.New("locked by another process")

// sameFile reports whether name still refers to the open file f. A lock on a file that was renamed or removed protects
// nothing.
func sameFile(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(name)
	return err == nil && os.SameFile(a, b)
}
