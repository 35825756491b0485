//go:build !linux

package archive

import (
	"os"

	"golang.org/x/sys/unix"
)

// openPlace opens a directory to write to.
func openPlace(path string) (*os.Root, error) { return os.OpenRoot(path) }

// noWait is for files that may be pipes.
const noWait = unix.O_NONBLOCK
