//go:build !linux

package store

import (
	"fmt"
	"os"
)

// Stamp returns a text that changes when a file is written or replaced: its size and time of modification.
func Stamp(f os.FileInfo) string { return fmt.Sprintf("%d %d", f.Size(), f.ModTime().UnixNano()) }
