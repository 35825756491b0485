//go:build linux && (amd64 || arm64)

package kernel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// identity is what tells a program, map or link from all others, a program's tag and
// a link's cgroup: the beginning of bpf_prog_info, bpf_map_info and bpf_link_info in
// include/uapi/linux/bpf.h. The library asks for much more, among it all of a
// program's code, which takes the kernel a hundred times as long.
type identity struct {
	Type, ID uint32
	Tag      [8]byte // of a program; program of a link in the first four bytes
	Cgroup   uint64  // of a link to a cgroup
}

func (i identity) tag() string { return hex.EncodeToString(i.Tag[:]) }

// program is that of a link.
func (i identity) program() uint32 { return le.Uint32(i.Tag[:]) }

// identify asks for the object behind a descriptor.
func identify(fd int) (i identity, err error) {
	attr := struct {
		fd, size uint32
		info     unsafe.Pointer
	}{uint32(fd), uint32(unsafe.Sizeof(i)), unsafe.Pointer(&i)}
	const getInfo = 15 // BPF_OBJ_GET_INFO_BY_FD
	if _, _, e := unix.Syscall(unix.SYS_BPF, getInfo, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)); e != 0 {
		return i, fmt.Errorf("ask for a BPF object: %w", os.NewSyscallError("bpf", e))
	}
	return i, nil
}

func identifyLink(ln link.Link) (identity, error) {
	l, ok := ln.(interface{ FD() int })
	if !ok {
		return identity{}, errors.New("a link without a descriptor")
	}
	return identify(l.FD())
}
