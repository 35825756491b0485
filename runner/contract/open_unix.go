//go:build linux || darwin

package contract

import (
	"os"

	"golang.org/x/sys/unix"
)

// openNonblock opens path for reading without waiting for a FIFO's writer.
func openNonblock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
