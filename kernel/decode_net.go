package kernel

import (
	"bytes"
	"net/netip"
)

// A struct address in segAddr: family, protocol, socket type, padding, local
// and remote port (all u16, ports in host order), local and remote address of 16
// bytes each, padding.
const addressSize = 48

func (d *decoder) network(r *record, bits uint32) {
	e := &d.ev
	if a := r.seg[segAddr]; len(a) == addressSize {
		e.Family, e.Proto, e.SockType = le.Uint16(a), le.Uint16(a[2:]), le.Uint16(a[4:])
		e.Local = addrPort(e.Family, a[12:28], le.Uint16(a[8:]))
		e.Remote = addrPort(e.Family, a[28:44], le.Uint16(a[10:]))
		if e.Remote.IsValid() && e.Remote.Port() == 0 && e.Remote.Addr().IsUnspecified() {
			e.Remote = netip.AddrPort{} // nobody
		}
	}
	if a := r.seg[segAddr]; len(a) == addressSize && e.Family == afVsock {
		e.VsockRemote = VsockAddr{CID: le.Uint32(a[28:]), Port: le.Uint32(a[32:])}
		e.VsockLocal = VsockAddr{CID: le.Uint32(a[12:]), Port: le.Uint32(a[16:])}
	}
	switch e.Kind {
	case KindDNS, KindTLSHello:
		e.Payload = r.seg[segName]
	case KindTraffic, KindSend:
		e.Bytes, e.BytesIn = r.arg(4), r.arg(5)
	}
	if e.Family == 1 { // AF_UNIX
		d.unixPath(r, bits)
	}
}

// unixPath sets Path to a unix socket's name.
func (d *decoder) unixPath(r *record, bits uint32) {
	e := &d.ev
	name := r.seg[segName]
	if rest := r.seg[segPath]; len(rest)+len(r.seg[segBase]) > 0 && bits&bitWalked == 0 {
		e.PathSource = PathUserMemory
		d.path[0] = d.join(d.path[0][:0], r.seg[segBase], rest)
		e.Path = d.path[0]
		e.Given, _, _ = bytes.Cut(r.seg[segGiven], []byte{0})
		return
	}
	switch {
	case bits&bitWalked != 0:
		e.PathSource = PathKernelObject
		d.path[0] = d.kernelPath(d.path[0][:0], r.seg[segPath])
	case len(name) == 0:
		return
	case name[0] == 0: // abstract: shown as ss and /proc/net/unix do
		e.PathSource = PathKernelObject
		d.path[0] = append(append(d.path[0][:0], '@'), name[1:]...)
	default:
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		e.PathSource = PathUserMemory
		d.path[0] = append(d.path[0][:0], name...)
	}
	if e.FromUser {
		e.PathSource = PathUserMemory
	}
	e.Path = d.path[0]
}

const afVsock = 40

// VsockAddr is an address of AF_VSOCK: a machine and a port of it, see vsock(7).
type VsockAddr struct{ CID, Port uint32 }

func addrPort(family uint16, a []byte, port uint16) netip.AddrPort {
	switch family {
	case 2: // AF_INET
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[:4])), port)
	case 10: // AF_INET6
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(a)), port)
	}
	return netip.AddrPort{}
}
