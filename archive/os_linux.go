package archive

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// datasync is fdatasync(2): it writes a file's bytes to disk, and only the metadata that is needed to read them.
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
	// Pipes and some file systems do not support it.
	if errors.Is(serr, unix.EINVAL) {
		return nil
	}
	return serr
}

// allocate reserves the first n bytes of a file on its disk.
func allocate(f *os.File, n int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != unix.EINTR {
			return err
		}
	}
}
