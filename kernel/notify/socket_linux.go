//go:build amd64 || arm64

package notify

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// maxMessages bounds how many addresses of one sendmmsg are read.
const maxMessages = 64

// bound is the address that a program asked to bind a socket to.
type bound struct {
	family uint16
	local  netip.AddrPort
	vsock  kernel.VsockAddr
	name   string // of a unix socket
}

// set sets the address of an event.
func (b *bound) set(e *kernel.Event) {
	e.Value, e.UserMemory = b.name, b.name != ""
	own, peer := b.local, netip.AddrPort{}
	ownVsock, peerVsock := b.vsock, kernel.VsockAddr{}
	if e.Kind != schema.KindBind && e.Kind != schema.KindListen {
		own, peer, ownVsock, peerVsock = peer, own, peerVsock, ownVsock
	}
	e.SetEnds(b.family, 0, own, peer)
	if b.family == unix.AF_VSOCK {
		e.SetVsock(ownVsock, peerVsock)
	}
}

// maxBound bounds how many addresses are kept, for sockets that may listen later.
const maxBound = 4096

// sockets reports calls with the address of a socket, and knows which addresses sockets were bound to.
type sockets struct {
	events *events
	names  *names
	bound  map[string]bound // by the name of the socket in /proc
}

func newSockets(events *events, names *names) *sockets {
	return &sockets{events: events, names: names, bound: map[string]bound{}}
}

// call reports a call with an address. It does not report a call without one: the peer
// was reported when the socket was connected.
func (s *sockets) call(e *kernel.Event, p *process, n *notification, call *kernel.Call, compat bool) {
	e.Args = nil
	size := 16 // bytes of a struct msghdr that are read
	if compat {
		size = 8
	}
	address := func(header uint64) (at uint64, length int, ok bool) {
		var b [16]byte
		if !p.read(b[:size], header) {
			return 0, 0, false
		}
		if compat {
			return uint64(le.Uint32(b[:])), int(int32(le.Uint32(b[4:]))), true
		}
		return le.Uint64(b[:]), int(int32(le.Uint32(b[8:]))), true
	}
	one := func(at uint64, length int, ok bool) {
		if ok && (at == 0 || length <= 0) {
			return
		}
		c := *e
		var b *bound
		if ok {
			b, ok = s.address(&c, p, at, length)
		}
		if !ok {
			(&bound{}).set(&c)
			c.Marks |= schema.MarkUnreadable
			s.events.tally.unreadable++
		} else if c.Kind == schema.KindBind {
			s.bind(b, p, n)
		}
		s.events.emit(&c)
	}
	s.events.quiet(call.Hook, func() {
		switch call.Name {
		case "sendmsg":
			one(address(n.args[1]))
		case "sendmmsg":
			stride := uint64(64)
			if compat {
				stride = 32
			}
			for i := range min(n.args[2]&0xffffffff, maxMessages) {
				one(address(n.args[1] + i*stride))
			}
		default:
			one(n.args[call.Path], int(int32(n.args[call.Path+1])), true)
		}
	})
}

// bind keeps the address of a socket, by the name that /proc has for it.
func (s *sockets) bind(b *bound, p *process, n *notification) {
	if name, ok := s.names.link(p, fdName(int32(n.args[0]))); ok {
		if len(s.bound) >= maxBound {
			clear(s.bound)
		}
		s.bound[name] = *b
	}
}

// listens reports listen(2), at the address that the run asked for with bind, if any.
func (s *sockets) listens(e *kernel.Event, p *process, n *notification) {
	var b bound
	if name, ok := s.names.link(p, fdName(int32(n.args[0]))); ok {
		b = s.bound[name]
	}
	e.FromUser = b.family != 0
	b.set(e)
	s.events.emit(e)
}

// address reads a struct sockaddr.
func (s *sockets) address(e *kernel.Event, p *process, at uint64, length int) (*bound, bool) {
	var b [128]byte // size of struct sockaddr_storage: the kernel refuses more
	a := b[:min(length, len(b))]
	if len(a) < 2 || !p.read(a, at) {
		return nil, false
	}
	e.FromUser = true
	is := &bound{family: le.Uint16(a)}
	switch {
	case is.family == unix.AF_INET && len(a) >= 8:
		is.local = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
	case is.family == unix.AF_INET6 && len(a) >= 24:
		is.local = netip.AddrPortFrom(netip.AddrFrom16([16]byte(a[8:24])), uint16(a[2])<<8|uint16(a[3]))
	case is.family == unix.AF_VSOCK && len(a) >= 12:
		is.vsock = kernel.VsockAddr{Port: le.Uint32(a[4:]), CID: le.Uint32(a[8:])}
	case is.family == unix.AF_UNIX:
		is.name = s.names.unixName(e, p, a[2:])
	}
	is.set(e)
	return is, true
}
