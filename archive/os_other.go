//go:build !linux

package archive

import (
	"errors"
	"os"
)

func datasync(f *os.File) error { return f.Sync() }

// allocate is not supported here. A full disk may then lose the final documents, which recover makes again.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
