package proctree

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// lockRunID takes the user's lock on a run id where no directory stands for the
// session: two runs with one id have the same marks, and would end each other. It
// is an abstract socket address (unix(7)), which is free again once the last
// process that has it is gone, and leaves nothing behind. The guard has it too.
func lockRunID(runID string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("lock run id: %w", err)
	}
	sum := sha256.Sum256([]byte(runID)) // an address is shorter than a run id may be
	address := &unix.SockaddrUnix{Name: fmt.Sprintf("@assay-run/%d/%x", os.Getuid(), sum[:16])}
	for end := time.Now().Add(procs.LockWait); ; time.Sleep(procs.LockLook) {
		err = unix.Bind(fd, address)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
			break
		}
	}
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.EADDRINUSE):
		err = procs.ErrInUse
	default:
		err = fmt.Errorf("lock run id: %w", err)
	}
	unix.Close(fd)
	return -1, err
}
