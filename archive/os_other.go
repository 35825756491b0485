//go:build !linux

package archive

import (
	"errors"
	"os"
)

func datasync(f *os.File) error { return f.Sync() }

// allocate is not done here: a full disk may then lose final documents, which recover
// makes anew.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
