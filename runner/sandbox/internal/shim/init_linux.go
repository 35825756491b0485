package shim

import (
	"encoding/binary"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// exitShim is the exit status of a shim that could not do its work.
const exitShim = 125

// forNamespaces are what a process keeps, in a user namespace, to make the layers.
var forNamespaces = []int{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN}

// MapUser maps the user and group that run this into a user namespace that attr
// asks for, and no other.
func MapUser(attr *syscall.SysProcAttr) {
	if attr.Cloneflags&unix.CLONE_NEWUSER == 0 {
		return
	}
	uid, gid := os.Geteuid(), os.Getegid()
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	// The shim is executed as somebody who is not root there.
	for _, capability := range forNamespaces {
		attr.AmbientCaps = append(attr.AmbientCaps, uintptr(capability))
	}
}

// signals is the bit set of the signals in list.
func signals(list ...unix.Signal) (set uint64) {
	for _, sig := range list {
		set |= 1 << (sig - 1)
	}
	return set
}

// goAhead is the runner's word.
var goAhead = []byte{1}

const dialSize = 8 + sizeofSockaddr

// question is what a shim takes: the id of a dial, and where to.
func question(id uint64, port int) []byte {
	return append(binary.NativeEndian.AppendUint64(nil, id), loopback(port)...)
}
