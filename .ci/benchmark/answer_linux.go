package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// answer COMMAND... runs a command with nearly the same filter as the notify tier, and
// answers each notification at once without reading it. No listener can cost less.
func answer(args []string) {
	runtime.LockOSThread()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	check(err)
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	self, err := os.Executable()
	check(err)
	cmd := exec.Command(self, append([]string{"answered"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{theirs}
	check(cmd.Start())
	check(theirs.Close())
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fds[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	check(err)
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	check(err)
	rights, err := unix.ParseUnixRights(&messages[0])
	check(err)
	const setFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(rights[0]), setFlags, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	for serveEmpty(rights[0]) {
	}
	check(cmd.Wait())
}

// serveEmpty answers one notification. It returns false when no task has the filter any
// more.
func serveEmpty(listener int) bool {
	var request, reply [32]uint64 // struct seccomp_notif and seccomp_notif_resp, with room to grow
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		fds := []unix.PollFd{{Fd: int32(listener)}}
		_, _ = unix.Poll(fds, 0)
		return fds[0].Revents&unix.POLLHUP == 0
	}
	reply[0], reply[2] = request[0], unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE<<32 // the id, and the flags, which follow the error
	_, _, _ = unix.RawSyscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&reply)))
	return true
}

// answered COMMAND... loads the filter, sends the listener over descriptor 3, and becomes
// the command.
func answered(args []string) {
	path, err := exec.LookPath(args[0])
	check(err)
	runtime.LockOSThread()
	check(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	code := answeredFilter()
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		check(fmt.Errorf("seccomp: %w", errno))
	}
	check(unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0))
	check(unix.Close(int(fd)))
	check(unix.Close(3))
	check(syscall.Exec(path, args, os.Environ()))
}

// answeredFilter notifies of the calls that the notify tier notifies of in every case.
func answeredFilter() (code []unix.SockFilter) {
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}
	native, _ := kernel.Calls()
	for nr, call := range native {
		if !slices.Contains([]string{"sendto", "sendmsg", "socket", "clone"}, call.Name) {
			p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF})
		}
	}
	p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_EXIT_GROUP, SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF})
	raw, err := bpf.Assemble(append(p, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	check(err)
	for _, in := range raw {
		code = append(code, unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K})
	}
	return code
}
