//go:build !linux

package archive

import (
	"errors"
	"os"
)

// openPlace opens a directory to write to.
func openPlace(path string) (*os.Root, error) { return os.OpenRoot(path) }

// openNameless is for Linux.
func openNameless(*os.Root) (*os.File, error) { return nil, errors.ErrUnsupported }

// linkNameless is for Linux.
func linkNameless(*os.File, *os.Root, string) error { return errors.ErrUnsupported }

// checkSpoolDir accepts any directory.
func checkSpoolDir(string) error { return nil }

// CheckSpoolParent accepts any directory.
func CheckSpoolParent(string) error { return nil }

// MakePlace makes a directory for an output.
func MakePlace(path string) error { return os.MkdirAll(path, 0o777) }
