//go:build !unix

package gateway

import (
	"net"
	"os"
	"time"
)

func flock(*os.File) error { return nil }

func sweepSocketDirs(string) {}

func (l *listener) interrupt(u *net.UnixListener) { u.SetDeadline(time.Unix(1, 0)) }
