//go:build linux && (amd64 || arm64)

package kernel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
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
	return i, objectInfo(fd, unsafe.Pointer(&i), unsafe.Sizeof(i))
}

func objectInfo(fd int, info unsafe.Pointer, size uintptr) error {
	attr := struct {
		fd, size uint32
		info     unsafe.Pointer
	}{uint32(fd), uint32(size), info}
	const getInfo = 15 // BPF_OBJ_GET_INFO_BY_FD
	if _, _, e := unix.Syscall(unix.SYS_BPF, getInfo, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)); e != 0 {
		return fmt.Errorf("ask for a BPF object: %w", os.NewSyscallError("bpf", e))
	}
	return nil
}

// identifyProgram asks for a program, and for the ids of the maps that it uses, in the
// order of their first use.
func identifyProgram(fd int) (identity, []uint32, error) {
	ids := make([]uint32, 64) // as many as a program may use: MAX_USED_MAPS
	info := struct {
		identity
		_    [28]byte
		maps uint32
		ids  unsafe.Pointer
	}{maps: uint32(len(ids)), ids: unsafe.Pointer(unsafe.SliceData(ids))}
	err := objectInfo(fd, unsafe.Pointer(&info), unsafe.Sizeof(info))
	return info.identity, ids[:min(len(ids), int(info.maps))], err
}

// openPin opens what is pinned there, which has to be a "prog", "map" or "link": ids of one
// kind mean nothing among the others. To open a program, the library makes a
// map as well, to see whether this kernel knows names.
func openPin(path, kind string) (fd int, err error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	attr := struct {
		path            unsafe.Pointer
		fd, flags, root uint32
		_               uint32
	}{path: unsafe.Pointer(name)}
	const get = 7 // BPF_OBJ_GET
	got, _, e := unix.Syscall(unix.SYS_BPF, get, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if e != 0 {
		return -1, os.NewSyscallError("bpf", e)
	}
	is, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(got)))
	if err == nil && is != "anon_inode:bpf-"+kind {
		err = fmt.Errorf("it is %s", is)
	}
	if err != nil {
		unix.Close(int(got))
		return -1, err
	}
	return int(got), nil
}

// identifyPin asks for the object of that kind that is pinned there.
func identifyPin(path, kind string) (i identity, err error) {
	fd, err := openPin(path, kind)
	if err != nil {
		return i, err
	}
	defer unix.Close(fd)
	return identify(fd)
}

func identifyLink(ln link.Link) (identity, error) {
	l, ok := ln.(interface{ FD() int })
	if !ok {
		return identity{}, errors.New("a link without a descriptor")
	}
	return identify(l.FD())
}
