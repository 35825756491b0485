//go:build linux && (amd64 || arm64)

package signals

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

//lint:ignore U1000 the handler reads it

// pipe is the end of a pipe that the handler writes numbers of signals to.
var pipe uintptr

// addresses are those of the handler, which is no Go code, and of what it returns to.
func addresses() (handler, restorer uintptr)

// action is the kernel's struct sigaction.
type action struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// handled tells whether the handler is there to be used.
var handled = sync.OnceValue(func() bool {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return false
	}
	pipe = uintptr(fds[1])
	go deliver(os.NewFile(uintptr(fds[0]), "signals"))
	return true
})

// deliver sends what the handler writes. It drops what is too much, as package os/signal does.
func deliver(from *os.File) {
	buf := make([]byte, 64)
	for {
		n, err := from.Read(buf)
		if err != nil {
			panic("read signals: " + err.Error()) // nobody closes the pipe
		}
		for _, b := range buf[:n] {
			select {
			case caught <- syscall.Signal(b):
			default:
			}
		}
	}
}

// catchQuiet has all of quiet delivered.
func catchQuiet() {
	var blocked unix.Sigset_t // in every thread, as Go does not change these
	if !handled() || unix.PthreadSigmask(unix.SIG_BLOCK, nil, &blocked) != nil {
		blocked.Val[0] = ^uint64(0)
	}
	handler, restorer := addresses()
	for _, n := range quiet() {
		if blocked.Val[0]>>(n-1)&1 != 0 || !handle(n, handler, restorer) {
			signal.Notify(caught, n) // in a thread that does not block it
		}
	}
}

// handle makes handler that of a signal.
func handle(n syscall.Signal, handler, restorer uintptr) bool {
	const onStack, restart, hasRestorer = 0x08000000, 0x10000000, 0x04000000 // SA_*, as Go sets them
	a := action{handler: handler, flags: onStack | restart | hasRestorer, restorer: restorer, mask: ^uint64(0)}
	_, _, err := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&a)), 0, 8, 0, 0)
	return err == 0
}
