//go:build amd64 || arm64

package notify

import (
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// Reason codes of a kernel.Unavailable of this package, and of a report's reasons.
const (
	CodeTaken      = "listener_taken"
	CodeRefused    = "seccomp_refused"
	CodeNoPidfd    = "pidfd_refused"
	CodeNoProc     = "proc_unusable"
	CodeShim       = "notify_failed"
	CodeTier       = "seccomp_notify"
	CodeUnread     = "arguments_unreadable"
	CodeIOUring    = "io_uring_used"
	CodeNested     = "listener_refused_to_program"
	CodePrivileges = "no_new_privs_set"
	CodeVanished   = "callers_unidentified"
)

// Probe checks whether the kernel, and the filters that this process already has, allow
// what an Observer needs. The error is a [*kernel.Unavailable]. Probe loads a filter that
// allows everything into a thread, which then ends.
func Probe() error {
	if fd, err := unix.PidfdOpen(unix.Getpid(), 0); err != nil {
		return &kernel.Unavailable{Reasons: []kernel.Reason{{
			Code: CodeNoPidfd, Message: "pidfd_open is refused, and without it a process can be mistaken for a " +
				"later one with the same pid: " + err.Error(),
			Remedy: "use Linux 5.5 or later, and allow pidfd_open in the container's seccomp profile",
		}}, Err: err}
	} else {
		unix.Close(fd)
	}
	if err := unix.Access("/proc/self/mem", unix.F_OK); err != nil { // a process may not be allowed to open its own
		return &kernel.Unavailable{Reasons: []kernel.Reason{{
			Code: CodeNoProc, Message: "the memory of processes cannot be read through /proc: " + err.Error(),
			Remedy: "mount -t proc proc /proc in the pid namespace",
		}}, Err: err}
	}
	answer := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread, and its filter, end here
		answer <- try()
	}()
	if errno := <-answer; errno != 0 {
		return unavailable(errno)
	}
	return nil
}

// try loads a filter into this thread.
func try() unix.Errno {
	var sizes [3]uint16 // struct seccomp_notif_sizes
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0,
		uintptr(unsafe.Pointer(&sizes))); errno != 0 {
		return errno
	}
	raw, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}})
	if err != nil {
		return unix.EINVAL
	}
	code := []unix.SockFilter{{Code: raw[0].Op, K: raw[0].K}}
	fd, errno := install(code, false)
	if errno == unix.EACCES {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil { // of this thread alone
			fd, errno = install(code, false)
		}
	}
	if errno == 0 {
		unix.Close(fd)
	}
	return errno
}

// unavailable explains why the kernel refused the listener.
func unavailable(errno unix.Errno) *kernel.Unavailable {
	r := kernel.Reason{Code: CodeRefused, Message: "the kernel refuses a seccomp filter with a listener: " +
		errno.Error()}
	switch errno {
	case unix.EBUSY:
		r.Code, r.Message = CodeTaken,
			"a seccomp filter with a listener is already in place, and there can be only one: this process runs "+
				"inside a notified run, or inside a container engine that uses one"
		r.Remedy = "run assay-run outside of it"
	case unix.EPERM, unix.EACCES, unix.ENOSYS:
		r.Remedy = "allow seccomp() in the container's seccomp profile"
	case unix.EINVAL:
		r.Remedy = "use Linux 5.5 or later"
	}
	return &kernel.Unavailable{Reasons: []kernel.Reason{r}, Err: errno}
}

// Privileged reports whether the filter can be loaded without setting no-new-privs for the
// command: it is set already, or this process has CAP_SYS_ADMIN.
func Privileged() bool {
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && n == 1 {
		return true
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
