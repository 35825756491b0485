//go:build amd64 || arm64

package notify

import (
	"net/netip"

	"github.com/assay-run/assay-run/kernel"
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

// maxBound bounds how many addresses are kept, for sockets that may listen later.
const maxBound = 4096
