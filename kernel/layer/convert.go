package layer

import (
	"fmt"
	"hash/maphash"
	"net/netip"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

func marks(ev *kernel.Event) (m schema.Marks) {
	if ev.Deleted {
		m |= schema.MarkDeleted
	}
	if ev.Memfd {
		m |= schema.MarkMemfd
	}
	if ev.RelativePath {
		m |= schema.MarkRelative
	}
	if ev.Unreachable {
		m |= schema.MarkUnreachable
	}
	if ev.Unreadable {
		m |= schema.MarkUnreadable
	}
	if ev.Unresolved {
		m |= schema.MarkUnresolved
	}
	return m
}

// stringCache spares a copy of a path that was used a moment ago.
type stringCache [512]string

var stringSeed = maphash.MakeSeed()

func (c *stringCache) get(p []byte) string {
	if len(p) == 0 || len(p) > 256 {
		return string(p)
	}
	s := &c[maphash.Bytes(stringSeed, p)%uint64(len(c))]
	if *s != string(p) {
		*s = string(p)
	}
	return *s
}

// Address families of socket(7), from linux/socket.h.
const (
	afUnix    = 1
	afNetlink = 16
	afPacket  = 17
	afVsock   = 40
)

// vsock writes an address as vsock(7) names its parts, "" for none.
func vsock(a kernel.VsockAddr) string {
	if a == (kernel.VsockAddr{}) {
		return ""
	}
	return fmt.Sprintf("vsock:%d:%d", a.CID, a.Port)
}

// protocol names the transport; "" when it isn't known.
func protocol(ev *kernel.Event) string {
	switch ev.Family {
	case afUnix:
		return "unix"
	case afNetlink:
		return "netlink"
	case afPacket:
		return "packet"
	case afVsock:
		return "vsock"
	}
	switch ev.Proto {
	case 1, 58:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 33:
		return "dccp"
	case 132:
		return "sctp"
	case 136:
		return "udplite"
	case 262:
		return "mptcp"
	}
	switch ev.SockType {
	case 1:
		return "tcp"
	case 2:
		return "udp"
	case 3:
		return "raw"
	}
	return ""
}

// unmap makes an IPv4 address that a socket of IPv6 uses an IPv4 address.
func unmap(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

func endpoint(ap netip.AddrPort) string {
	if !ap.IsValid() {
		return ""
	}
	return unmap(ap).String()
}
