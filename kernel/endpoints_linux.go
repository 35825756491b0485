//go:build linux && (amd64 || arm64)

package kernel

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// maxAccepted bounds the peers of accepted connections that are remembered. It is more
// than there are endpoints whose bytes are counted.
const maxAccepted = 1 << 16

// served are the TCP connections that a session accepted: its own end of each, by the
// peer. Only Read uses it.
type served map[netip.AddrPort]netip.AddrPort

// see notes an accepted connection, and one that the session opened itself.
func (s served) see(e *Event) {
	peer := unmapped(e.Remote)
	switch {
	case e.SockType != unix.SOCK_STREAM || e.Errno != 0 || !peer.IsValid():
	case e.Kind == KindConnect:
		delete(s, peer)
	case e.Local.IsValid() && len(s) < maxAccepted:
		s[peer] = unmapped(e.Local)
	}
}

// unmapped is an IPv4 address where a socket of IPv6 uses one.
func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// readEndpoints delivers the bytes that went to and came from each remote endpoint,
// those of all who connected to a port of the session's together. Which process of the
// session they belong to is not known.
func (o *Observer) readEndpoints(fn func(*Event) error) error {
	now := bootTime()
	id := uint64(1)<<62 + 1
	ports := map[netip.AddrPort]*Event{}
	deliver := func(e *Event) error {
		o.tally.endpoints.Add(1)
		e.ID = id
		id++
		o.dec.ev = *e
		return o.deliver(&o.dec.ev, fn)
	}
	err := o.loaded.slot.eachEndpoint(func(k *endpoint, v *traffic) error {
		e := &Event{
			Kind: KindTraffic, Hook: HookSkbOut, Time: now, CgroupID: v.Cgroup,
			Count: v.Packets, First: v.First, Last: v.Last, Bytes: v.Out, BytesIn: v.In,
			Family: k.Family, Proto: k.Proto, Remote: addrPort(k.Family, k.Addr[:], k.Port),
		}
		port, ok := o.served[unmapped(e.Remote)]
		if !ok || k.Proto != unix.IPPROTO_TCP {
			return deliver(e)
		}
		if all := ports[port]; all != nil {
			all.Count, all.Bytes, all.BytesIn, all.Peers = all.Count+e.Count, all.Bytes+e.Bytes, all.BytesIn+e.BytesIn, all.Peers+1
			all.First, all.Last = min(all.First, e.First), max(all.Last, e.Last)
			return nil
		}
		e.Local, e.Remote, e.Peers = port, netip.AddrPort{}, 1
		ports[port] = e
		return nil
	})
	for _, e := range ports {
		if err != nil {
			break
		}
		err = deliver(e)
	}
	return err
}
