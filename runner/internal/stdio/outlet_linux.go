package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// outlet is one of our own outputs. Its descriptor is shared with the process that started us, so O_NONBLOCK must not
// be set on it. Each kind has another way to avoid a write that blocks without being interruptible.
type outlet struct {
	fd   int
	kind outletKind
	file *os.File // keeps fd alive
}

type outletKind int

const (
	outBlocking outletKind = iota // files and devices: a write ends by itself
	outPipe                       // splice(2) takes SPLICE_F_NONBLOCK
	outSocket                     // send(2) takes MSG_DONTWAIT
)

func newOutlet(f *os.File) (*outlet, error) {
	fd, err := rawFD(f)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	o := &outlet{fd: fd, file: f}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		o.kind = outPipe
	case unix.S_IFSOCK:
		o.kind = outSocket
	}
	return o, nil
}

// rawFD returns f's descriptor without changing its flags, unlike File.Fd.
func rawFD(f *os.File) (int, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if err := c.Control(func(u uintptr) { fd = int(u) }); err != nil {
		return -1, err
	}
	return fd, nil
}

// writeAll writes p, waiting for room. It returns errAborted once abort is set.
func (o *outlet) writeAll(p []byte, abort int) error {
	for len(p) > 0 {
		var n int
		var err error
		if o.kind == outSocket {
			n, err = unix.SendmsgN(o.fd, p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		} else {
			n, err = unix.Write(o.fd, p)
		}
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := o.waitRoom(abort); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			p = p[n:]
		}
	}
	return nil
}

// waitRoom waits until a write may succeed or abort is set.
func (o *outlet) waitRoom(abort int) error {
	fds := []unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLOUT}, {Fd: int32(abort), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if fds[1].Revents != 0 {
			return errAborted
		}
		return nil
	}
}
