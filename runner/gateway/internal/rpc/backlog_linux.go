package rpc

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// backlog accepts the connections that are waiting at a listener, without blocking.
func backlog(u *net.UnixListener) (conns []net.Conn) {
	raw, err := u.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) {
		for {
			nfd, _, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err == unix.EINTR || err == unix.ECONNABORTED {
				continue
			}
			if err != nil {
				return
			}
			f := os.NewFile(uintptr(nfd), "gateway client")
			conn, err := net.FileConn(f)
			f.Close()
			if err == nil {
				conns = append(conns, conn)
			}
		}
	})
	return conns
}
