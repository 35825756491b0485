package procs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Wait waits until list returns nothing, by waiting for what it returned
// to exit and asking again.
func Wait(ctx context.Context, list func() []int) error {
	cancel, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("wait for processes: %w", err)
	}
	var once sync.Mutex
	open := true
	stop := context.AfterFunc(ctx, func() {
		once.Lock()
		defer once.Unlock()
		if open {
			_, _ = unix.Write(cancel, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
	})
	defer func() {
		stop()
		once.Lock()
		defer once.Unlock()
		open = false
		unix.Close(cancel)
	}()
	pause := 100 * time.Microsecond
	for {
		members := list()
		if len(members) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		start := time.Now()
		if !waitExits(cancel, members) || time.Since(start) < pause {
			// No pidfds here, or dead processes that are still listed.
			fds := []unix.PollFd{{Fd: int32(cancel), Events: unix.POLLIN}}
			ts := unix.NsecToTimespec(int64(pause))
			_, _ = unix.Ppoll(fds, &ts, nil)
			pause = min(2*pause, 20*time.Millisecond)
		} else {
			pause = 100 * time.Microsecond
		}
	}
}

// waitExits waits until the processes (the first few of many) have exited, or cancel is readable. It reports
// whether it could wait.
func waitExits(cancel int, pids []int) bool {
	fds := []unix.PollFd{{Fd: int32(cancel), Events: unix.POLLIN}}
	defer func() {
		for _, fd := range fds[1:] {
			if fd.Fd >= 0 {
				unix.Close(int(fd.Fd))
			}
		}
	}()
	for _, pid := range pids[:min(len(pids), 64)] {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		} else if err != nil {
			break
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if len(fds) == 1 {
		return false
	}
	poll := slices.Clone(fds)
	for left := len(fds) - 1; left > 0; {
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if poll[0].Revents != 0 {
			return true
		}
		for i := 1; i < len(poll); i++ {
			if poll[i].Fd >= 0 && poll[i].Revents != 0 {
				poll[i].Fd = -1 // poll(2) ignores it
				left--
			}
		}
	}
	return true
}

// Ended reports whether the process of a pidfd has ended; one that cannot be
// told has.
func Ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err != nil || n > 0
	}
}
