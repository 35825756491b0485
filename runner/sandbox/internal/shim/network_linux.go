package shim

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// network readies the network namespace: everything in it is the command's, so
// the ports are always free.
func (c *compiler) network() {
	if c.plan.Loopback {
		c.do(Network, "bring up lo", func() {
			fd := c.l.Word(0)
			ifreq := c.l.Bytes(append(append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...), make([]byte, 24)...))
			c.l.Put(ifreq+unix.IFNAMSIZ, unix.IFF_UP|unix.IFF_RUNNING)
			c.l.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).Into(fd)
			c.l.Call(unix.SYS_IOCTL, steps.Value(fd), unix.SIOCSIFFLAGS, ifreq)
			c.close(fd)
		})
	}
	for _, port := range c.plan.Ports {
		c.do(Network, "listen for the proxy on port "+strconv.Itoa(port), func() {
			m := c.message(KindListener)
			c.l.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0).Into(m.fd)
			c.l.Call(unix.SYS_BIND, steps.Value(m.fd), c.l.Bytes(loopback(port)), sizeofSockaddr)
			c.l.Call(unix.SYS_LISTEN, steps.Value(m.fd), 128)
			c.sendFile(m)
			c.close(m.fd)
		})
	}
}

const sizeofSockaddr = 16 // struct sockaddr_in

// loopback is the address of a port inside, as connect(2) takes it.
func loopback(port int) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	b = binary.BigEndian.AppendUint16(b, uint16(port))
	return append(b, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
}

// message is a message to the runner that is sent from the list's data.
type message struct {
	text   steps.Ref // kind, and two words
	fd     steps.Ref // the word for a descriptor to send with it
	header steps.Ref // struct msghdr
}

func (c *compiler) message(kind uint64) message {
	m := message{text: c.l.Word(kind)}
	c.l.Space(messageSize - 8)
	iov := c.l.Space(16)
	c.l.Pointer(iov, m.text)
	c.l.Put(iov+8, messageSize)
	control := c.l.Word(20) // struct cmsghdr with one descriptor
	c.l.Bytes(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, unix.SOL_SOCKET), unix.SCM_RIGHTS))
	m.fd = c.l.Word(0)
	m.header = c.l.Space(56)
	c.l.Pointer(m.header+16, iov)
	c.l.Put(m.header+24, 1)
	c.l.Pointer(m.header+32, control)
	c.l.Put(m.header+40, 24)
	return m
}

// send sends a message without its descriptor.
func (c *compiler) send(m message) steps.Step {
	return c.l.Call(unix.SYS_SENDTO, c.control, m.text, messageSize, unix.MSG_NOSIGNAL, 0, 0)
}

func (c *compiler) sendFile(m message) steps.Step {
	return c.l.Call(unix.SYS_SENDMSG, c.control, m.header, unix.MSG_NOSIGNAL)
}
