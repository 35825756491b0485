package shim

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxMessage limits a packet, in bytes. The longest possible packet reports a failure of every step.
const maxMessage = 64 << 10

// Conn is one end of the control socket, a pair of SOCK_SEQPACKET sockets.
type Conn struct{ f *os.File }

// Pair makes a control socket: the runner's end, and the shim's end as a file to inherit.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	if err := errors.Join(unix.SetNonblock(fds[0], true),
		unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)); err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	return &Conn{os.NewFile(uintptr(fds[0]), "sandbox control")}, os.NewFile(uintptr(fds[1]), "sandbox control"), nil
}

// Go starts the command of a plan with Waits. It may be called before the shim waits. If the shim is gone, it has
// reported why.
func (c *Conn) Go() error {
	err := c.send(goAhead)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// Dial asks for a connection to a port inside. The answer carries the id.
func (c *Conn) Dial(id uint64, port int) error { return c.send(question(id, port)) }

func (c *Conn) send(packet []byte) error {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	werr := raw.Write(func(s uintptr) bool {
		err = unix.Sendto(int(s), packet, unix.MSG_NOSIGNAL, nil)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(werr, err)
}

// Receive returns the next message, and its descriptor or -1. The error is io.EOF after the other end is closed.
func (c *Conn) Receive() (m Message, fd int, err error) {
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4)+unix.CmsgSpace(unix.SizeofUcred))
	raw, err := c.f.SyscallConn()
	if err != nil {
		return m, -1, err
	}
	var n, oobn, flags int
	rerr := raw.Read(func(s uintptr) bool {
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(s), buf, oob, unix.MSG_CMSG_CLOEXEC)
			// ECONNRESET means, once, that the other end was closed with an unread packet. Earlier messages can still
			// be read.
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNRESET) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if err = errors.Join(rerr, err); err != nil {
		if errors.Is(err, os.ErrClosed) {
			err = io.EOF
		}
		return m, -1, err
	}
	if n == 0 {
		return m, -1, io.EOF
	}
	fd, sender := received(oob[:oobn])
	if flags&unix.MSG_TRUNC != 0 {
		return m, fd, errors.New("control socket: a message is too long")
	}
	if m, err = decode(buf[:n]); err != nil {
		return m, fd, fmt.Errorf("control socket: %w", err)
	}
	m.Sender = sender
	return m, fd, nil
}

// received returns the descriptor that came with a message, or -1, and the sending process.
func received(oob []byte) (fd, sender int) {
	fd = -1
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fd, 0
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) > 0 {
			fd = fds[0]
		}
		if from, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			sender = int(from.Pid)
		}
	}
	return fd, sender
}

// Close unblocks Receive.
func (c *Conn) Close() error { return c.f.Close() }
