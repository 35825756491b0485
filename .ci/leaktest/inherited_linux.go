package leaktest

import "golang.org/x/sys/unix"

// keepInherited closes on exec the descriptors that this process was started with, except
// the standard streams. The tests' children must not inherit a shell's descriptors.
func keepInherited() { _ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }

// outputs says which standard streams became non-blocking. A program that is given one of them and does this to it, as
// Node does, makes the testing package lose what it prints while the pipe is full. The streams block again.
func (c *checked) outputs() (left []string) {
	for i, name := range []string{"output", "error"} { // which can be the same stream
		fd := i + 1
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK == 0 || c.nonblocking[fd] {
			continue
		}
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_NONBLOCK)
		left = append(left, "O_NONBLOCK on standard "+name+": give the program that sets it t.Output() instead")
	}
	return left
}

// nonblocking are the standard streams that were non-blocking before.
func nonblocking() map[int]bool {
	m := map[int]bool{}
	for fd := range 3 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		m[fd] = err == nil && flags&unix.O_NONBLOCK != 0
	}
	return m
}
