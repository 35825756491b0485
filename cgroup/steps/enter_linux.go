package steps

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/assay-run/assay-run/cgroup/role"
	"golang.org/x/sys/unix"
)

// Kinds of values of getauxval(3).
const (
	atEntry  = 9  // AT_ENTRY
	atSecure = 23 // AT_SECURE
)

func entryAddress() uintptr

// Enter executes the list that this process was started with, and exits. It returns where there is
// none, or after [List.Program]. A package's init function calls it, which runs on the process's
// first thread.
func Enter() {
	if len(os.Args) < 4 || !role.Steps.Is(os.Args) {
		return
	}
	fd, err := strconv.ParseUint(os.Args[2], 10, 31)
	environ, envErr := syscall.SlicePtrFromStrings(syscall.Environ())
	if err != nil || envErr != nil || giveUpPrivileges() != nil {
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

// Linked reports whether this program was linked with Entry. In any other, the process that
// executes a list has threads of the Go runtime, which take signals that the list has
// blocked; a child that the list forks has one thread.
func Linked() bool { return auxiliary(atEntry) == entryAddress() }

// Refused reports whether this program's file has capabilities or the set-user-ID bit. The
// processes of such a program execute lists without them.
func Refused() bool { return auxiliary(atSecure) != 0 }

// auxiliary is a value of getauxval(3), 0 without one.
func auxiliary(kind uintptr) uintptr {
	values, _ := unix.Auxv()
	for _, v := range values {
		if v[0] == kind {
			return v[1]
		}
	}
	return 0
}

// giveUpPrivileges makes this thread, and so what a list becomes, an ordinary process of its
// user, if it has privileges of the program's file. Root has its own.
func giveUpPrivileges() error {
	if !Refused() || unix.Getuid() == 0 {
		return nil
	}
	if unix.Getuid() != unix.Geteuid() || unix.Getgid() != unix.Getegid() {
		return unix.EPERM
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return errors.Join(unix.Capset(&header, &none[0]), unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
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

// action is rt_sigaction(2), and reports whether it succeeded.
func action(sig int, set, was *[4]uint64) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)),
		uintptr(unsafe.Pointer(was)), 8, 0, 0)
	return errno == 0
}
