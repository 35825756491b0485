//go:build !linux

package store

import (
	"fmt"
	"os"
)

// Stamp differs once a file has been written or replaced: its size, and when it last changed.
func Stamp(f os.FileInfo) string { return fmt.Sprintf("%d %d", f.Size(), f.ModTime().UnixNano()) }
