package stdio

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// chunk limits one read, tee or splice.
const chunk = 256 << 10

var errAborted = errors.New("aborted")

// pump copies what the child writes into one pipe to one of our outputs.
type pump struct {
	s       *Streams
	stream  string
	src     int // non-blocking; closed when run returns
	dst     *outlet
	cap     capture
	buf     []byte // of size chunk, made for the first output
	scratch [2]int // a pipe that tee(2) fills with what is to be kept
	bytes   int64  // read from the child
}

// run returns when every writer is gone, when our reader is gone (closing src then gives the child its SIGPIPE), when
// drain is set and everything that was in the pipe at that moment has been passed on, or when abort is set.
func (p *pump) run() {
	defer p.close()
	left := int64(-1) // what is still to be drained; negative: no limit
	fds := []unix.PollFd{
		{Fd: int32(p.src), Events: unix.POLLIN},
		{Fd: int32(p.s.abort), Events: unix.POLLIN},
		{Fd: int32(p.s.drain), Events: unix.POLLIN},
		{Fd: -1},
	}
	if p.dst.kind == outPipe {
		// POLLERR comes unasked once no reader is left. The child's very next write then fails, as it would without
		// us.
		fds[3].Fd = int32(p.dst.fd)
	}
	for left != 0 {
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			p.s.cfg.failed(p.stream, fmt.Errorf("%w: poll %s: %w", ErrOutput, p.stream, err))
			return
		}
		if fds[1].Revents != 0 || fds[3].Revents&unix.POLLERR != 0 {
			return
		}
		if fds[2].Revents != 0 {
			fds[2].Fd, fds[2].Revents = -1, 0
			n, err := unix.IoctlGetInt(p.src, unix.TIOCINQ)
			if left = int64(n); err != nil || n == 0 {
				return
			}
			continue
		}
		if fds[0].Revents == unix.POLLHUP {
			return // every writer is gone, and the pipe is empty
		}
		if p.buf == nil {
			p.buf = make([]byte, chunk)
		}
		n, err := p.step(left)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		p.bytes += n
		if err != nil && err != unix.EPIPE && err != unix.ECONNRESET && err != errAborted {
			p.s.cfg.failed(p.stream, fmt.Errorf("%w: write %s: %w", ErrOutput, p.stream, err))
		}
		if n == 0 || err != nil {
			return
		}
		if left > 0 {
			left -= n
		}
	}
}

// step moves up to left bytes, or any number if left is negative. It returns zero without an error at the end of the
// stream.
func (p *pump) step(left int64) (int64, error) {
	size := chunk
	if left >= 0 {
		size = int(min(left, chunk))
	}
	if p.dst.kind != outPipe {
		n, err := unix.Read(p.src, p.buf[:size])
		if n <= 0 {
			return 0, err
		}
		p.cap.write(p.buf[:n])
		return int64(n), p.dst.writeAll(p.buf[:n], p.s.abort)
	}
	if p.cap.done {
		return p.splice(size)
	}
	// One byte more than fits shows that the copy is truncated.
	n, err := unix.Tee(p.src, p.scratch[1], int(min(int64(size), p.cap.room()+1)), unix.SPLICE_F_NONBLOCK)
	if n <= 0 {
		return 0, err
	}
	for got := 0; got < int(n); {
		m, err := unix.Read(p.scratch[0], p.buf[:min(len(p.buf), int(n)-got)])
		if err == unix.EINTR {
			continue
		}
		if m <= 0 {
			return 0, err
		}
		p.cap.write(p.buf[:m])
		got += m
	}
	for moved := int64(0); moved < n; {
		m, err := p.splice(int(n - moved))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		moved += m
	}
	return n, nil
}

// splice moves up to size bytes from the child's pipe into our own without copying them. It waits for room there, but
// not for bytes. The pipe may be blocking: the flag of the call, not of the descriptor, avoids the wait.
func (p *pump) splice(size int) (int64, error) {
	for {
		n, err := unix.Splice(p.src, nil, p.dst.fd, nil, size, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if err != unix.EAGAIN {
			return n, err
		}
		if n, err := unix.IoctlGetInt(p.src, unix.TIOCINQ); err != nil || n == 0 {
			return 0, unix.EAGAIN
		}
		if err := p.dst.waitRoom(p.s.abort); err != nil {
			return 0, err
		}
	}
}

func (p *pump) close() {
	unix.Close(p.src)
	unix.Close(p.scratch[0])
	unix.Close(p.scratch[1])
}
