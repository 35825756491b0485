//go:build !linux

package rpc

import (
	"net"
	"time"
)

// untilStopped notices nothing where the kernel does not tell who has connected.
func untilStopped(net.Conn, time.Duration, func()) (stop func()) { return func() {} }
