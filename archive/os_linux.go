package archive

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync puts a file's bytes on disk, and no more of its inode than reading
// them back needs.
func datasync(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := conn.Control(func(fd uintptr) {
		for {
			if serr = unix.Fdatasync(int(fd)); serr != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	// A pipe or a file system without sync has nothing to lose.
	if errors.Is(serr, unix.EINVAL) {
		return nil
	}
	return serr
}

// allocate gives a file n bytes of its disk.
func allocate(f *os.File, n int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != unix.EINTR {
			return err
		}
	}
}
