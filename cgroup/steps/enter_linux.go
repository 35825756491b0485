package steps

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Enter executes the list that this process was started with, and exits. It returns where there is
// none. A package's init function calls it, which runs on the process's first thread.
func Enter() {
	if len(os.Args) != 4 || os.Args[0] != name || os.Args[1] != arg {
		return
	}
	fd, err := strconv.ParseUint(os.Args[2], 10, 31)
	aux, auxErr := unix.Auxv()
	environ, envErr := syscall.SlicePtrFromStrings(syscall.Environ())
	if err != nil || auxErr != nil || envErr != nil || secure(aux) {
		os.Exit(exitStatus)
	}
	runtime.LockOSThread()
	likeExec()
	execute(uintptr(fd), uintptr(unsafe.Pointer(&environ[0])))
	runtime.KeepAlive(environ)
}

// secure tells whether this process has privileges of its file's.
func secure(aux [][2]uintptr) bool {
	const atSecure = 23 // AT_SECURE of getauxval(3)
	for _, entry := range aux {
		if entry[0] == atSecure && entry[1] != 0 {
			return true
		}
	}
	return false
}

// likeExec takes all signals from the Go runtime, as exec does. Its other threads have
// nothing to do, and wait.
func likeExec() {
	// The kernel's struct sigaction: handler, flags, restorer, mask.
	var was, standard [4]uint64
	for sig := uintptr(1); sig <= 64; sig++ {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&was)), 8, 0, 0)
		const ignore = 1 // SIG_IGN
		if errno == 0 && was[0] != ignore {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&standard)), 0, 8, 0, 0)
		}
	}
}
