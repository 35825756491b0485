package runner

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// startDescriptors are the descriptors that cmd gets and that somebody opened before the run, in the order of their
// numbers: those of its standard streams that are ours, which has the three, and, unless only those pass, each
// other one of ours that an execution does not close. What the recorder has opened for itself is closed by
// then, and so is what it made for the streams.
func startDescriptors(cmd *exec.Cmd, ours [3]*os.File, onlyStreams bool) (list []schema.Inherited) {
	for i, given := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f, ok := given.(*os.File)
		if !ok || f == nil || f != ours[i] {
			continue
		}
		if c, err := f.SyscallConn(); err == nil {
			c.Control(func(fd uintptr) { list = append(list, descriptor(int(fd), i)) })
		}
	}
	if onlyStreams {
		return list
	}
	names, _ := os.ReadDir("/proc/self/fd")
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			list = append(list, descriptor(fd, fd))
		}
	}
	slices.SortFunc(list, func(a, b schema.Inherited) int { return a.FD - b.FD })
	return list[:min(len(list), schema.MaxInherited)]
}

// descriptor describes our descriptor fd, which is the command's descriptor number.
func descriptor(fd, number int) schema.Inherited {
	d := schema.Inherited{FD: number, Type: "other"}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil {
		d.Access = [...]string{"read", "write", "read_write", ""}[flags&unix.O_ACCMODE]
		if flags&unix.O_PATH != 0 {
			d.Access = ""
		}
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return d
	}
	link, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		d.Type, d.Path = "file", link
	case unix.S_IFDIR:
		d.Type, d.Path = "directory", link
	case unix.S_IFCHR, unix.S_IFBLK:
		d.Type, d.Path = "device", link
	case unix.S_IFIFO:
		if d.Type = "pipe"; strings.HasPrefix(link, "/") { // it has a name
			d.Path = link
		}
	case unix.S_IFSOCK:
		d.Type = "socket"
		d.Protocol, d.Local, d.Peer = ends(fd)
	default:
		d.Path = link // anon_inode:[eventfd]
	}
	return d
}

// ends are the protocol of a socket and its two addresses, as kernel events have them.
func ends(fd int) (protocol, local, peer string) {
	option := func(name int) uint16 {
		n, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, name)
		return uint16(n)
	}
	family, proto := option(unix.SO_DOMAIN), option(unix.SO_PROTOCOL)
	own, _ := unix.Getsockname(fd)
	other, _ := unix.Getpeername(fd)
	ev := kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindInherited}, SockType: option(unix.SO_TYPE)}
	ev.SetEnds(family, proto, internet(own), internet(other))
	local, peer = ev.Local, ev.Value
	if to, ok := other.(*unix.SockaddrVM); ok {
		ev.SetVsock(kernel.VsockAddr{}, kernel.VsockAddr{CID: to.CID, Port: to.Port})
		peer = ev.Value
	}
	if family == unix.AF_UNIX {
		local, peer = unixName(own), unixName(other)
	}
	return ev.Protocol, local, peer
}

// internet is an address of IPv4 or IPv6; the zero value is any other.
func internet(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// unixName is a unix socket's name, empty where it has none.
func unixName(a unix.Sockaddr) string {
	if u, ok := a.(*unix.SockaddrUnix); ok && u.Name != "" && u.Name != "@" {
		return "unix:" + u.Name
	}
	return ""
}
