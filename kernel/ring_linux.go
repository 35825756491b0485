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
	fd       int
	own, end []byte // the consumer's page and the producer's
	data     []byte // the mapped part of the ring, which begins at the offset from
	from     uint64
	views    [][]byte // all mapped parts: records in use may be in earlier ones
	size     uint64
	at, next uint64 // where the consumer is, and where it goes with advance
}

const (
	ringBusy    = 1 << 31
	ringDiscard = 1 << 30
	ringHeader  = 8

	// ringView is how much of a ring is mapped at first: the kernel maps page by page, and a short run needs few.
	ringView = 128 << 10
)

// newRing reads a ring from now on: what is in it is a former session's.
func newRing(m *ebpf.Map) (_ *ring, err error) {
	r := &ring{fd: m.FD(), size: uint64(m.MaxEntries())}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	page := os.Getpagesize()
	if r.own, err = r.mmap(0, page, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return nil, err
	}
	if r.end, err = r.mmap(page, page, unix.PROT_READ); err != nil {
		return nil, err
	}
	r.next = atomic.LoadUint64(r.producer())
	r.advance()
	if err = r.view(r.at&(r.size-1)&^uint64(page-1), min(ringView, r.size)); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *ring) mmap(off, size, prot int) ([]byte, error) {
	b, err := unix.Mmap(r.fd, int64(off), size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the ring buffer: %w", err)
	}
	return b, nil
}

// view maps n bytes of the data, which are there twice, one after the other.
func (r *ring) view(from, n uint64) error {
	b, err := r.mmap(2*os.Getpagesize()+int(from), int(n), unix.PROT_READ)
	if err != nil {
		return err
	}
	r.data, r.from, r.views = b, from, append(r.views, b)
	return nil
}

// bytes are n of the data, at most as many as the ring has.
func (r *ring) bytes(off, n uint64) ([]byte, error) {
	if off < r.from || off+n > r.from+uint64(len(r.data)) {
		if err := r.view(0, 2*r.size); err != nil {
			return nil, err
		}
	}
	return r.data[off-r.from:][:n], nil
}

func (r *ring) close() {
	for _, b := range append(r.views, r.own, r.end) {
		if b != nil {
			_ = unix.Munmap(b)
		}
	}
}

func (r *ring) consumer() *uint64 { return (*uint64)(unsafe.Pointer(&r.own[0])) }
func (r *ring) producer() *uint64 { return (*uint64)(unsafe.Pointer(&r.end[0])) }

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
		head, err := r.bytes(off, ringHeader)
		if err != nil {
			return nil, err
		}
		n := atomic.LoadUint32((*uint32)(unsafe.Pointer(&head[0])))
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
		return r.bytes(off+ringHeader, length)
	}
}

// advance frees the record that peek returned.
func (r *ring) advance() {
	r.at = r.next
	atomic.StoreUint64(r.consumer(), r.at)
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
	r := &reader{seen: serials{last: map[uint32]*uint32{}}}
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
		_, _ = unix.Read(int(fds[lanes].Fd), make([]byte, 8))
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
