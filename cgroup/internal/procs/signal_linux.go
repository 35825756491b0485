package procs

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to every process that list returns, once each, also to
// those that are forked meanwhile. A process id is used only while its process
// is in the set, so one that is used again is never hit.
func Signal(list func() []int, sig unix.Signal) error {
	sent := map[int]bool{}
	var failed error
	quiet := 0 // a look at a moving set can miss one: two in a row do not
	for range 1000 {
		fds := map[int]int{}
		for _, pid := range list() {
			if sent[pid] {
				continue
			}
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				fds[pid] = fd
			} else if !errors.Is(err, unix.ESRCH) {
				fds[pid] = -1 // no pidfds here, or no descriptor left
			}
		}
		if len(fds) == 0 {
			if quiet++; quiet == 2 {
				break
			}
			continue
		}
		quiet = 0
		still := list()
		for pid, fd := range fds {
			if slices.Contains(still, pid) {
				if err := send(pid, fd, sig); err != nil && !errors.Is(err, unix.ESRCH) {
					failed = fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), pid, err)
				}
				sent[pid] = true
			}
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	return failed
}

func send(pid, fd int, sig unix.Signal) error {
	if fd >= 0 {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return unix.Kill(pid, sig)
}
