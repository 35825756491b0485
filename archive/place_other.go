//go:build !linux

package archive

import "os"

// openPlace opens a directory to write to.
func openPlace(path string) (*os.Root, error) { return os.OpenRoot(path) }

// checkSpoolDir accepts any directory.
func checkSpoolDir(string) error { return nil }

// CheckSpoolParent accepts any directory.
func CheckSpoolParent(string) error { return nil }
