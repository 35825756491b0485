package main

import (
	"fmt"
	"os"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutBPF runs a command under a seccomp filter that refuses bpf(2) as a
// container's does: without-bpf EPERM|ENOSYS CMD [ARG...].
func withoutBPF() {
	errnos := map[string]uint32{"EPERM": uint32(unix.EPERM), "ENOSYS": uint32(unix.ENOSYS)}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number is first in struct seccomp_data
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_BPF, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errnos[os.Args[1]]},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	path, err := exec.LookPath(os.Args[2])
	if errno != 0 || err != nil {
		fmt.Fprintln(os.Stderr, "without-bpf:", errno, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "without-bpf:", unix.Exec(path, os.Args[2:], os.Environ()))
	os.Exit(1)
}
