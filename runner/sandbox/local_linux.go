package sandbox

import (
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// dialed is the init's answer: a connection inside.
type dialed struct {
	fd  int
	err error
}

// listenLocal listens on the host's loopback address for the ports inside that it may
// reach. With the host's network they are there already. Connections wait until serveLocal.
// The error is a *PortError.
func (s *Sandbox) listenLocal() error {
	if s.profile.Network.Mode == NetHost {
		return nil
	}
	for _, port := range s.profile.Network.LocalPorts {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			s.closeLocal()
			return &PortError{Port: port, Err: err}
		}
		s.mu.Lock()
		s.local = append(s.local, localPort{l, port})
		s.mu.Unlock()
	}
	return nil
}

// localPort is a port of the host's that is forwarded to the same port inside.
type localPort struct {
	net.Listener
	port int
}

// serveLocal forwards connections, once the command runs.
func (s *Sandbox) serveLocal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.local {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go s.carry(c.(*net.TCPConn), l.port)
			}
		}()
	}
}

// closeLocal ends the forwarding of new connections.
func (s *Sandbox) closeLocal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.local {
		l.Close()
	}
	s.local = nil
}

// carry joins a connection from outside to one inside.
func (s *Sandbox) carry(outer *net.TCPConn, port int) {
	defer outer.Close()
	c, err := s.connectInside(port)
	if err != nil {
		return
	}
	defer c.Close()
	join(outer, c.(*net.TCPConn))
}

// connectInside connects to a port of the loopback device inside.
func (s *Sandbox) connectInside(port int) (net.Conn, error) {
	fd, err := s.dial(port)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "local port")
	defer f.Close()
	if err = connected(f); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// dialTimeout bounds a connection inside: the loopback device is never slow.
const dialTimeout = 5 * time.Second

// connected waits until a socket that does not block is connected, or cannot be.
func connected(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := f.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	var connectErr error
	err = raw.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err == nil {
			_, err = unix.Getpeername(int(fd))
		}
		connectErr = err
		return !errors.Is(err, unix.ENOTCONN) // writable once it is connected or refused
	})
	return errors.Join(err, connectErr)
}

// dial asks the init for a connection to a port inside.
func (s *Sandbox) dial(port int) (int, error) {
	answer := make(chan dialed, 1)
	s.mu.Lock()
	if s.closed || s.dials == nil {
		s.mu.Unlock()
		return -1, net.ErrClosed
	}
	s.nextID++
	id := s.nextID
	s.dials[id] = answer
	s.mu.Unlock()
	if err := s.conn.Dial(id, port); err != nil {
		return -1, err
	}
	d := <-answer
	return d.fd, d.err
}

func (s *Sandbox) answer(m shim.Message, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.dials[m.ID]
	delete(s.dials, m.ID)
	switch {
	case answer == nil:
		if fd >= 0 {
			unix.Close(fd)
		}
	case fd < 0:
		answer <- dialed{-1, m.Refused}
	default:
		answer <- dialed{fd, nil}
	}
}

// hangUp answers everybody who waits for an init that is gone.
func (s *Sandbox) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, answer := range s.dials {
		answer <- dialed{-1, net.ErrClosed}
	}
	s.dials = nil
}
