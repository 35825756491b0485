//go:build !linux

package rpc

import "net"

// backlog returns nothing, since a listener cannot be polled here.
func backlog(*net.UnixListener) []net.Conn { return nil }
