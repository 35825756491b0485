//go:build !unix

package rundir

import (
	"errors"
	"fmt"
	"os"
)

var errLocked = errors.New("another process holds the lock")

func lockDir(path string) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: %w", path, errors.ErrUnsupported)
}

func isOwnDir(string, os.FileMode) error { return nil }
