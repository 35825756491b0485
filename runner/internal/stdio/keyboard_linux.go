package stdio

import "golang.org/x/sys/unix"

// lookAgain is how often, in milliseconds, the keyboard looks for what no event
// tells: that we came to the foreground (`fg` of a job that was running sends
// nothing), or that the child made its terminal canonical again.
const lookAgain = 200

// keyboard carries keys from our terminal to the master while the child wants
// them and we are in the foreground.
func (t *terminal) keyboard() {
	// A read from the background then fails with EIO, and does not stop us.
	defer blockTTYSignals()()
	var pending []byte
	buf := make([]byte, 4096)
	for {
		t.mu.Lock()
		active := t.adjust()
		timeout := -1
		if !t.suspended && (t.full && !active || t.lazy && active) {
			timeout = lookAgain
		}
		t.mu.Unlock()
		fds := []unix.PollFd{
			{Fd: int32(t.s.drain), Events: unix.POLLIN},
			{Fd: int32(t.s.abort), Events: unix.POLLIN},
			{Fd: int32(t.wake), Events: unix.POLLIN},
			{Fd: -1, Events: unix.POLLIN},
			{Fd: -1, Events: unix.POLLOUT},
		}
		if active && len(pending) == 0 {
			fds[3].Fd = int32(t.in)
		}
		if len(pending) > 0 {
			fds[4].Fd = int32(t.mfd)
		}
		if _, err := unix.Poll(fds, timeout); err != nil && err != unix.EINTR {
			return
		} else if err != nil {
			continue
		}
		if fds[0].Revents != 0 || fds[1].Revents != 0 {
			return
		}
		if fds[2].Revents != 0 {
			var b [8]byte
			unix.Read(t.wake, b[:])
			continue // Suspend may have given the terminal back
		}
		if fds[3].Revents != 0 {
			n, err := t.readKeys(buf)
			if err == nil && n == 0 || err == unix.ENXIO || fds[3].Revents&(unix.POLLHUP|unix.POLLERR) != 0 && n <= 0 {
				return // our terminal is gone
			}
			pending = append(pending, buf[:max(n, 0)]...)
		}
		if len(pending) > 0 {
			pending = pending[t.writeKeys(pending):]
		}
	}
}

// readKeys reads only while the terminal is ours to read.
func (t *terminal) readKeys(buf []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.raw || !foreground(t.in) {
		return 0, unix.EAGAIN
	}
	n, err := unix.Read(t.in, buf)
	return n, err
}

// writeKeys writes to the master what it takes, and returns how much that was.
func (t *terminal) writeKeys(p []byte) int {
	n, err := unix.Write(t.mfd, p)
	if err == unix.EIO {
		return len(p) // nobody will ever read them
	}
	return max(n, 0)
}
