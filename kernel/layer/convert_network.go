package layer

import (
	"fmt"
	"net/netip"

	"github.com/assay-run/assay-run/kernel"
)

// Address families of socket(7), from linux/socket.h.
const (
	afUnix    = 1
	afNetlink = 16
	afPacket  = 17
	afVsock   = 40
)

// network fills the endpoints.
func (b *Builder) network(ev *kernel.Event) {
	e := &b.out
	e.Protocol = protocol(ev)
	e.UserMemory = ev.FromUser
	if ev.Family == afUnix {
		e.Value = "unix:" + e.Value
	} else if ev.Family == afVsock {
		e.Value = vsock(ev.VsockRemote)
		if ev.Kind == kernel.KindBind || ev.Kind == kernel.KindListen {
			e.Value = vsock(ev.VsockLocal)
		}
	} else {
		e.Local, e.Value = endpoint(ev.Local), endpoint(ev.Remote)
		if ev.Kind == kernel.KindBind || ev.Kind == kernel.KindListen {
			e.Value, e.Local = e.Local, ""
			if a := ev.Local; ev.Errno != 0 && a.Port() == 0 && a.Addr().IsUnspecified() {
				e.Value = "" // it failed in its arguments
			}
		}
	}
	switch ev.Kind {
	case kernel.KindConnect:
		if ev.Remote.IsValid() {
			b.stats.Connects++
		}
	case kernel.KindSend:
		e.BytesOut = ev.Bytes
		if ev.Syscall == "sendmsg" || ev.Syscall == "sendmmsg" {
			e.Call = ev.Syscall
		}
		if ev.Remote.IsValid() {
			b.stats.DatagramPeers++
		}
	case kernel.KindConnectResult:
		e.HasResult, e.Result = !ev.NoResult, int64(ev.Ret)
	case kernel.KindTraffic:
		e.BytesOut, e.BytesIn, e.Peers, e.HasResult = ev.Bytes, ev.BytesIn, ev.Peers, false
	}
	if ev.Kind != kernel.KindBind && ev.Kind != kernel.KindListen {
		e.Names = b.names.of(unmap(ev.Remote))
	}
}

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
