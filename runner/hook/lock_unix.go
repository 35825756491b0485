package hook

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow makes an open fail for a symbolic link, and not wait for a pipe.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// lock waits until no other process holds the lock of the file.
func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
