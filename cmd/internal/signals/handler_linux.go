//go:build linux && (amd64 || arm64)

package signals

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
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

// handled tells whether the handler is there to be used. A child has it too until it
// executes something, while it puts its files in their places: there the pipe must not be.
var handled = sync.OnceValue(func() bool {
	const aboveFilesOfChildren = 128
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return false
	}
	to, err := unix.FcntlInt(uintptr(fds[1]), unix.F_DUPFD_CLOEXEC, aboveFilesOfChildren)
	unix.Close(fds[1])
	if err != nil {
		unix.Close(fds[0])
		return false
	}
	pipe = uintptr(to)
	go deliver(os.NewFile(uintptr(fds[0]), "signals"))
	return true
})

// deliver sends what the handler writes. Of a signal that comes again before it is sent,
// one is sent, as by package os/signal. That package drops what finds the channel full, so
// a flood may fill but half of it.
func deliver(from *os.File) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			panic("read signals: " + err.Error()) // nobody closes the pipe
		}
		var came [last + 1]bool
		for _, b := range buf[:n] {
			came[b] = true
		}
		for n := range came {
			for came[n] && len(caught) >= cap(caught)/2 {
				time.Sleep(time.Millisecond)
			}
			if came[n] {
				caught <- syscall.Signal(n)
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
