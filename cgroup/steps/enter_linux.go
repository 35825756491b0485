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
// none, or after [List.Program]. A package's init function calls it, which runs on the process's
// first thread.
func Enter() {
	if len(os.Args) < 4 || os.Args[0] != name || os.Args[1] != arg {
		return
	}
	fd, err := strconv.ParseUint(os.Args[2], 10, 31)
	environ, envErr := syscall.SlicePtrFromStrings(syscall.Environ())
	if err != nil || envErr != nil || Refused() {
		os.Exit(exitStatus)
	}
	runtime.LockOSThread()
	handled := likeExec()
	execute(uintptr(fd), uintptr(unsafe.Pointer(&environ[0])))
	runtime.KeepAlive(environ)
	handled.restore()
	runtime.UnlockOSThread()
	os.Args = After(os.Args)
}

// Refused tells whether the processes of this program execute no list, because its file has
// capabilities or the set-user-ID bit.
func Refused() bool {
	aux, err := unix.Auxv()
	return err != nil || secure(aux)
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

// actions are what signals do: the kernel's struct sigaction, which has handler, flags,
// restorer and mask.
type actions [65][4]uint64

const ignore = 1 // SIG_IGN

// likeExec takes all signals from the Go runtime, as exec does. Its other threads have
// nothing to do, and wait.
func likeExec() (handled actions) {
	for sig := range handled {
		if was := &handled[sig]; action(sig, nil, was) && was[0] != ignore {
			action(sig, new([4]uint64), nil)
		}
	}
	return handled
}

// restore gives the runtime back the signals that the list did not ignore.
func (handled *actions) restore() {
	var is [4]uint64
	for sig := range handled {
		if action(sig, nil, &is) && is[0] != ignore {
			action(sig, &handled[sig], nil)
		}
	}
}

// action is rt_sigaction(2).
func action(sig int, set, was *[4]uint64) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)), 8, 0, 0)
	return errno == 0
}
