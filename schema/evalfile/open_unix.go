//go:build unix

package evalfile

import "syscall"

// nonblock keeps the open of a pipe from waiting for its writer.
const nonblock = syscall.O_NONBLOCK
