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

// reserveSpace allocates a file of n bytes.
func reserveSpace(name string, n int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fallocate(int(f.Fd()), 0, 0, n)
}
