//go:build !linux

package rpc

import (
	"net"
	"time"
)

// untilStopped does nothing, since this system does not tell who connected.
func untilStopped(net.Conn, time.Duration, func()) (stop func()) { return func() {} }
