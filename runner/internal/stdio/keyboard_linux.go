package stdio

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

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
	tio, err := unix.IoctlGetTermios(t.mfd, unix.TCGETS) // the slave's
	suspend := false
	if err == nil && t.full && tio.Lflag&unix.ISIG != 0 && tio.Cc[unix.VSUSP] != 0 {
		if i := bytes.IndexByte(p, tio.Cc[unix.VSUSP]); i >= 0 {
			p, suspend = p[:i+1], true
		}
	}
	n, err := unix.Write(t.mfd, p)
	if err == unix.EIO {
		return len(p) // nobody will ever read them
	}
	if suspend && n == len(p) {
		t.stopChild()
	}
	return max(n, 0)
}

// stopChild does what the kernel will not do for the suspend key. The child's
// group is orphaned in the sense of POSIX, its parent being in another session,
// and the kernel drops the default action of SIGTSTP there. A child with a
// handler has just been asked by the line discipline, and one that ignores the
// signal is left alone; both go unstopped, as under script(1) or docker run. One
// that blocks it is stopped: shells do for a moment whenever they fork.
// A group that a shell inside made has that shell for a parent: the kernel stops it.
func (t *terminal) stopChild() {
	pid := t.cmd.Process.Pid
	if group, err := unix.IoctlGetInt(t.mfd, unix.TIOCGPGRP); err != nil || group != pid {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "SigCgt" || name == "SigIgn" {
			var mask uint64
			fmt.Sscanf(strings.TrimSpace(value), "%x", &mask)
			if mask&(1<<(unix.SIGTSTP-1)) != 0 {
				return
			}
		}
	}
	// The leader alone at first: one that is in vfork(2) stops only when its
	// child has called exec, which a stopped child never does. Suspend stops the rest.
	t.stopKey.Store(true)
	unix.Kill(pid, unix.SIGSTOP)
}
