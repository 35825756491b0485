//go:build unix

package strict

import "syscall"

// nonblock keeps the opening of a FIFO from waiting for a writer.
const nonblock = syscall.O_NONBLOCK
