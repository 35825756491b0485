//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockDir locks the directory until the returned file is closed. The file contains the holder's process and host.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range 10 { // Holder takes a shared lock for a moment
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(10 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		holder, _ := io.ReadAll(io.LimitReader(f, 1000))
		return nil, errors.Join(fmt.Errorf("%w: %s, %s", ErrLocked, dir, strings.TrimSpace(string(holder))), f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	host, _ := os.Hostname()
	text := fmt.Sprintf("process %d on %s\n", os.Getpid(), host)
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// Holder names the process that holds the lock on the directory; empty if there is none.
func Holder(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return "", err // closing the file releases the lock
	}
	holder, err := io.ReadAll(io.LimitReader(f, 1000))
	return strings.TrimSpace(string(holder)), err
}
