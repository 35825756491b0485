//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/assay-run/assay-run/cgroup/steps"
	"golang.org/x/sys/unix"
)

// The shim is this program, started again to load the filter and become the command. Its
// arguments are role.Name, role.Notify, the descriptor of a socket, path, argv...

// exitShim is the exit status of a shim that could not do its work.
const exitShim = 125

// Enter does the work of the shim and exits, if this process was started as the shim.
// Otherwise it returns.
func Enter() { role.Play(map[role.Role]func([]string) int{role.Notify: shimMain}) }

// hello is a message of the shim. The first one comes with the listener if errno is 0. The
// second says why the command could not be executed. If the command was executed, the
// socket closes instead.
type hello struct {
	errno     unix.Errno
	killable  bool // SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	privilege bool // no-new-privs had to be set
}

const helloSize = 8

func (h hello) encode() []byte {
	b := make([]byte, helloSize)
	binary.NativeEndian.PutUint32(b, uint32(h.errno))
	if h.killable {
		b[4] = 1
	}
	if h.privilege {
		b[5] = 1
	}
	return b
}

func decodeHello(b []byte) hello {
	return hello{unix.Errno(binary.NativeEndian.Uint32(b)), b[4] != 0, b[5] != 0}
}

// shimMain loads the filter into one thread, sends the listener from another thread, which
// has no filter, and then executes the command in the first. If the kernel refuses the
// filter, the command runs without it.
func shimMain(args []string) int {
	if len(args) < 5 {
		return exitShim
	}
	socket, err := strconv.Atoi(args[2])
	if err != nil || socket < 3 {
		return exitShim
	}
	unix.CloseOnExec(socket)
	type loaded struct {
		fd int
		hello
	}
	loading, sent := make(chan loaded), make(chan bool)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: it has the filter
		fd, h := load()
		loading <- loaded{fd, h}
		if <-sent {
			err := steps.Restore()
			if err == nil {
				err = syscall.Exec(args[3], args[4:], syscall.Environ())
			}
			failed <- err
		}
	}()
	l := <-loading
	var rights []byte
	if l.fd >= 0 {
		rights = unix.UnixRights(l.fd)
	}
	if err := unix.Sendmsg(socket, l.encode(), rights, nil, unix.MSG_NOSIGNAL); err != nil {
		return exitShim
	}
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
	sent <- true
	var errno syscall.Errno
	errors.As(<-failed, &errno)
	_, _ = unix.Write(socket, hello{errno: errno}.encode())
	return exitShim
}

// load loads the filter into this thread. The descriptor is -1 if that failed. load sets
// no-new-privs only if the kernel requires it (seccomp(2): EACCES).
func load() (fd int, h hello) {
	code, err := filter()
	if err != nil {
		return -1, hello{errno: unix.EINVAL}
	}
	h.killable = true
	for {
		fd, h.errno = install(code, h.killable)
		switch {
		case h.errno == 0:
			return fd, h
		case h.errno == unix.EINVAL && h.killable: // before Linux 5.19
			h.killable = false
		case h.errno == unix.EACCES && !h.privilege:
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return -1, h
			}
			h.privilege = true
		default:
			return -1, h
		}
	}
}

func install(code []unix.SockFilter, killable bool) (fd int, errno unix.Errno) {
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if killable {
		flags |= unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, errno
	}
	return int(r), 0
}
