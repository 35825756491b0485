//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Lanes, as enum lane in bpf/record.h.
const (
	laneFiles = iota
	laneUrgent
	lanes
)

// ring reads one BPF ring buffer in place (kernel/bpf/ringbuf.c). A library's
// reader waits on one ring and copies; here two are read in the order of time.
type ring struct {
	own, shared []byte // the consumer's page; the producer's page and the data, twice
	data        []byte
	size        uint64
	at, next    uint64 // where the consumer is, and where it goes with advance
}

const (
	ringBusy    = 1 << 31
	ringDiscard = 1 << 30
	ringHeader  = 8
)

func newRing(m *ebpf.Map) (*ring, error) {
	page, size := os.Getpagesize(), int(m.MaxEntries())
	own, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the ring buffer: %w", err)
	}
	shared, err := unix.Mmap(m.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Munmap(own)
		return nil, fmt.Errorf("map the ring buffer: %w", err)
	}
	return &ring{own: own, shared: shared, data: shared[page:], size: uint64(size)}, nil
}

func (r *ring) close() {
	_ = unix.Munmap(r.own)
	_ = unix.Munmap(r.shared)
}

func (r *ring) consumer() *uint64 { return (*uint64)(unsafe.Pointer(&r.own[0])) }
func (r *ring) producer() *uint64 { return (*uint64)(unsafe.Pointer(&r.shared[0])) }

// errRing: somebody else wrote to the ring, or read from it.
var errRing = errors.New("the ring buffer is broken")

// peek returns the oldest record, which is valid until advance, or nil.
func (r *ring) peek() ([]byte, error) {
	for {
		at, end := atomic.LoadUint64(r.consumer()), atomic.LoadUint64(r.producer())
		if at == end {
			return nil, nil
		}
		if end-at > r.size || at != r.at {
			return nil, errRing
		}
		off := at & (r.size - 1)
		n := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[off])))
		if n&ringBusy != 0 {
			continue // being written, on another CPU, by a program that cannot be preempted
		}
		length := uint64(n &^ ringDiscard)
		if length > end-at-ringHeader {
			return nil, errRing
		}
		r.next = at + ringHeader + (length+7)&^7
		if n&ringDiscard != 0 {
			r.advance()
			continue
		}
		return r.data[off+ringHeader : off+ringHeader+length], nil
	}
}

// advance frees the record that peek returned.
func (r *ring) advance() {
	r.at = r.next
	atomic.StoreUint64(r.consumer(), r.at)
}

// empty forgets what is in the ring.
func (r *ring) empty() {
	r.next = atomic.LoadUint64(r.producer())
	r.advance()
}

// reader reads the rings of a session.
type reader struct {
	rings [lanes]*ring
	fds   [lanes + 1]unix.PollFd // the last is an eventfd that ends a wait
	stop  atomic.Bool
	seen  serials
	mu    sync.Mutex // of who drains or closes
}

func newReader(maps [lanes]*ebpf.Map) (_ *reader, err error) {
	r := &reader{seen: serials{last: map[uint32]uint32{}}}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.fds[lanes].Fd = -1
	for i, m := range maps {
		if r.rings[i], err = newRing(m); err != nil {
			return nil, err
		}
		r.rings[i].empty() // a former session's
		r.fds[i] = unix.PollFd{Fd: int32(m.FD()), Events: unix.POLLIN}
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	r.fds[lanes] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	return r, nil
}

// drain hands the records that are there to fn, the older first. A record is
// valid until fn returns.
func (r *reader) drain(fn func(raw []byte) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	files, urgent := r.rings[laneFiles], r.rings[laneUrgent]
	if files == nil || urgent == nil {
		return os.ErrClosed
	}
	var a []byte // of files, not handed over yet
	for {
		var err error
		if a == nil {
			if a, err = files.peek(); err != nil {
				return err
			}
		}
		b, err := urgent.peek()
		if err != nil {
			return err
		}
		if a == nil && b == nil {
			return nil
		}
		from, raw, lane := files, a, laneFiles
		if a == nil || b != nil && recordTime(b) <= recordTime(a) {
			from, raw, lane = urgent, b, laneUrgent
		}
		r.seen.see(lane, raw)
		if err := fn(raw); err != nil {
			return err
		}
		from.advance()
		if from == files {
			a = nil
		}
	}
}

// recordTime is a raw record's time, 0 when it is none.
func recordTime(raw []byte) uint64 {
	if len(raw) < offTime+8 {
		return 0
	}
	return le.Uint64(raw[offTime:])
}

// wait returns true when there is something to drain, and false after d.
func (r *reader) wait(d time.Duration) (bool, error) {
	fds := r.fds
	n, err := unix.Poll(fds[:], int(d/time.Millisecond))
	if err != nil && err != unix.EINTR {
		return false, fmt.Errorf("wait for the ring buffers: %w", err)
	}
	if n > 0 && fds[lanes].Revents != 0 {
		_, _ = unix.Read(int(fds[lanes].Fd), make([]byte, 8)) // of whoever sets stop, it is set by now
	}
	return n > 0, nil
}

// wake ends one wait at once.
func (r *reader) wake() error {
	_, err := unix.Write(int(r.fds[lanes].Fd), []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// flush ends the reading: stop is set before the wait ends.
func (r *reader) flush() error {
	r.stop.Store(true)
	return r.wake()
}

func (r *reader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, ring := range r.rings {
		if ring != nil {
			ring.close()
			r.rings[i] = nil
		}
	}
	if r.fds[lanes].Fd < 0 {
		return nil
	}
	return unix.Close(int(r.fds[lanes].Fd))
}
