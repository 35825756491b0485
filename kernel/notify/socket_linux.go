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
