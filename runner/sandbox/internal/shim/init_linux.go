package shim

import (
	"encoding/binary"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// exitShim is the exit status of a shim that failed.
const exitShim = 125

// forNamespaces are the capabilities that a process in a user namespace needs to make the layers. overlayfs works with
// the rights of whoever mounted it, in directories that nobody may enter, so it needs CAP_DAC_OVERRIDE.
var forNamespaces = []int{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_DAC_OVERRIDE}

// MapUser maps the current user and group, and no others, into the user namespace of attr.
func MapUser(attr *syscall.SysProcAttr) {
	if attr.Cloneflags&unix.CLONE_NEWUSER == 0 {
		return
	}
	uid, gid := os.Geteuid(), os.Getegid()
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	// The shim is executed as a user that is not root there.
	for _, capability := range forNamespaces {
		attr.AmbientCaps = append(attr.AmbientCaps, uintptr(capability))
	}
}

// signals returns a bit set of signals.
func signals(list ...unix.Signal) (set uint64) {
	for _, sig := range list {
		set |= 1 << (sig - 1)
	}
	return set
}

// goAhead is the runner's message to start the command.
var goAhead = []byte{1}

const dialSize = 8 + sizeofSockaddr

// question is a request to a shim: the id and port of a dial.
func question(id uint64, port int) []byte {
	return append(binary.NativeEndian.AppendUint64(nil, id), loopback(port)...)
}
