//go:build amd64 || arm64

package notify

import (
	"bytes"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// maxMessages bounds how many addresses of one sendmmsg are read.
const maxMessages = 64

// socket reports a call with an address. It does not report a call without one: the peer
// was reported when the socket was connected.
func (o *Observer) socket(e *kernel.Event, p *process, n *notification, call *kernel.Call, compat bool) {
	e.Args = [6]uint64{}
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
		if !ok || !o.address(&c, p, at, length) {
			c.Unreadable = true
			o.unreadable++
		}
		if c.Kind == kernel.KindBind && ok {
			o.bind(&c, p, n)
		}
		o.emit(&c)
	}
	o.quiet(call.Hook, func() {
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

// bound is the address that a program asked to bind a socket to.
type bound struct {
	family uint16
	local  netip.AddrPort
	vsock  kernel.VsockAddr
	path   string
}

// maxBound bounds how many addresses are kept, for sockets that may listen later.
const maxBound = 4096

// bind keeps the address of a socket, by the name that /proc has for it.
func (o *Observer) bind(e *kernel.Event, p *process, n *notification) {
	if name, ok := o.link(p, fdName(int32(n.args[0]))); ok {
		if len(o.bound) >= maxBound {
			clear(o.bound)
		}
		o.bound[name] = bound{e.Family, e.Local, e.VsockLocal, string(e.Path)}
	}
}

// listens reports listen(2), at the address that the run asked for with bind, if any.
func (o *Observer) listens(e *kernel.Event, p *process, n *notification) {
	if name, ok := o.link(p, fdName(int32(n.args[0]))); ok {
		b := o.bound[name]
		e.Family, e.Local, e.VsockLocal, e.FromUser = b.family, b.local, b.vsock, b.family != 0
		if b.path != "" {
			e.Path, e.PathSource = []byte(b.path), kernel.PathUserMemory
		}
	}
	o.emit(e)
}

// address reads a struct sockaddr.
func (o *Observer) address(e *kernel.Event, p *process, at uint64, length int) bool {
	var b [128]byte // size of struct sockaddr_storage: the kernel refuses more
	a := b[:min(length, len(b))]
	if len(a) < 2 || !p.read(a, at) {
		return false
	}
	e.Family, e.FromUser = le.Uint16(a), true
	end := func(ap netip.AddrPort) {
		if e.Kind == kernel.KindBind {
			e.Local = ap
		} else {
			e.Remote = ap
		}
	}
	switch {
	case e.Family == unix.AF_INET && len(a) >= 8:
		end(netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3])))
	case e.Family == unix.AF_INET6 && len(a) >= 24:
		end(netip.AddrPortFrom(netip.AddrFrom16([16]byte(a[8:24])), uint16(a[2])<<8|uint16(a[3])))
	case e.Family == unix.AF_VSOCK && len(a) >= 12:
		v := kernel.VsockAddr{Port: le.Uint32(a[4:]), CID: le.Uint32(a[8:])}
		if e.Kind == kernel.KindBind {
			e.VsockLocal = v
		} else {
			e.VsockRemote = v
		}
	case e.Family == unix.AF_UNIX:
		o.unixName(e, p, a[2:])
	}
	return true
}

// unixName sets the name of a unix socket (unix(7)).
func (o *Observer) unixName(e *kernel.Event, p *process, name []byte) {
	if len(name) == 0 {
		return
	}
	e.PathSource = kernel.PathUserMemory
	if name[0] == 0 {
		o.paths[0] = append(append(o.paths[0][:0], '@'), name[1:]...)
		e.Path = o.paths[0]
		return
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	base := o.rootOf(p)
	if len(name) > 0 && name[0] != '/' {
		var ok bool
		if base, ok = o.link(p, "cwd"); !ok || base == "" || base[0] != '/' {
			e.Path, e.RelativePath = append(o.paths[0][:0], name...), true
			o.paths[0] = e.Path
			return
		}
	}
	e.Path, e.Unresolved = join(append(o.paths[0][:0], base...), name)
	o.paths[0] = e.Path
}
