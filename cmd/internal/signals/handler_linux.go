//go:build linux && (amd64 || arm64)

package signals

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pending are the signals that came and that nobody has taken yet: 1<<(n-1) for signal n.
// However often one comes, there is room for it.
var pending uint64

//lint:ignore U1000 the handler reads it

// bell is an eventfd that the handler adds to when it has changed pending.
var bell uintptr

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
// executes something, while it puts its files in their places: there the bell must not be.
var handled = sync.OnceValue(func() bool {
	const aboveFilesOfChildren = 128
	low, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return false
	}
	defer unix.Close(low)
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, aboveFilesOfChildren)
	if err != nil {
		return false
	}
	bell = uintptr(fd)
	go deliver(os.NewFile(bell, "signals"))
	return true
})

// deliver sends the signals that are pending. Package os/signal drops what finds the channel
// full, so a flood may fill only half of it.
func deliver(bell *os.File) {
	var times [8]byte
	for {
		if _, err := bell.Read(times[:]); err != nil {
			panic("read signals: " + err.Error()) // nobody closes it
		}
		came := atomic.SwapUint64(&pending, 0)
		for n := syscall.Signal(1); n <= last; n++ {
			if came>>(n-1)&1 == 0 {
				continue
			}
			for len(caught) >= cap(caught)/2 {
				time.Sleep(time.Millisecond)
			}
			caught <- n
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
