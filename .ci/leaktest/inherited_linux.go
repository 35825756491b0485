package leaktest

import "golang.org/x/sys/unix"

// keepInherited keeps the descriptors that this process was started with, but for
// the standard streams, from what the tests start: a shell's must not show there.
func keepInherited() { _ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }
