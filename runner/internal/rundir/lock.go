package rundir

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

var errLocked = errors.New("another process holds the lock")

// lockDir opens a directory and locks it until it is closed.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// isOwnDir returns an error unless a path is a directory of this user with at most these permissions.
func isOwnDir(path string, mode os.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Getuid() || info.Mode().Perm()&^mode != 0 {
		return fmt.Errorf("%s is not a directory that only this user can write: remove it, or set TMPDIR", path)
	}
	return nil
}
