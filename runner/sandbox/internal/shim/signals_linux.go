package shim

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dispositions of signals (asm-generic/signal-defs.h).
const (
	sigDefault = 0
	sigIgnore  = 1
)

// sigaction is the kernel's struct sigaction, on amd64 and arm64.
type sigaction struct{ handler, flags, restorer, mask uint64 }

// dispose takes signals from the Go runtime, but for those that are ignored already,
// which the command inherits. Package os/signal would hand each of them from thread
// to thread, which takes longer than all mounts.
func dispose(handler uint64, signals ...unix.Signal) {
	for _, sig := range signals {
		var was sigaction
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&was)), unsafe.Sizeof(was.mask), 0, 0); errno != 0 || was.handler == sigIgnore {
			continue
		}
		now := sigaction{handler: handler}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&now)), 0, unsafe.Sizeof(now.mask), 0, 0)
	}
}
