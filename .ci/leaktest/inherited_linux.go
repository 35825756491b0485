package leaktest

import "golang.org/x/sys/unix"

// keepInherited closes on exec the descriptors that this process was started with, except
// the standard streams. The tests' children must not inherit a shell's descriptors.
func keepInherited() { _ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }
