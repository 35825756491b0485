//go:build !unix

package rpc

import (
	"errors"
	"fmt"
	"os"
)

var errLocked = errors.New("another process holds the lock")

func lockDir(path string) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: %w", path, errors.ErrUnsupported)
}

func isOwnDir(string) error { return nil }
