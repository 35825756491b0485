package shim

import (
	"golang.org/x/sys/unix"
)

// network readies the network namespace: everything in it is the command's, so
// the proxy's port is always free.
func (s *shim) network() error {
	if s.plan.Loopback {
		if err := s.do(Network, "bring up lo", loopbackUp); err != nil {
			return err
		}
	}
	if s.plan.ProxyPort == 0 {
		return nil
	}
	return s.do(Network, "listen for the proxy", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: s.plan.ProxyPort, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		if err := unix.Listen(fd, 128); err != nil {
			return err
		}
		return s.conn.Send(Message{Kind: KindListener}, fd)
	})
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
