package auditlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrOff is what Open returns where the host audits nothing.
var ErrOff = errors.New("auditing is off")

const (
	groupReadLog = 1       // AUDIT_NLGRP_READLOG, which needs CAP_AUDIT_READ
	buffer       = 4 << 20 // bytes, for what arrives while we do not run
	maxRecords   = 20_000  // different ones, that are kept at a time
	headerSize   = 16      // struct nlmsghdr
)

// Log is the audit's records from Open on.
type Log struct {
	socket *os.File
	done   chan struct{}

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	own     map[int]bool
	domains map[string]*domain
	kept    int // records in all domains
	missed  bool
}

// domain is what a Landlock domain was refused.
type domain struct {
	pid     int // 0: not told yet
	ended   bool
	arrived uint64
	count   uint64 // by the kernel, once it has ended
	records map[Record]uint64
}

// Refusals are what the domains of some processes were refused.
type Refusals struct {
	// Records tell when each was refused first, in CLOCK_BOOTTIME nanoseconds.
	Records map[Record]uint64
	// Lost is how many more there were.
	Lost uint64
}

// Open starts to listen. The error wraps ErrOff, or the kernel's answer to somebody who
// may not listen.
func Open() (*Log, error) {
	st, err := status()
	if err != nil {
		return nil, fmt.Errorf("audit status: %w", err)
	}
	if st.enabled == 0 {
		return nil, ErrOff
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_AUDIT)
	if err != nil {
		return nil, fmt.Errorf("audit socket: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groupReadLog}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen to the audit: %w", err)
	}
	l := &Log{
		socket: os.NewFile(uintptr(fd), "audit"), done: make(chan struct{}), changed: make(chan struct{}, 1),
		own: map[int]bool{}, domains: map[string]*domain{},
	}
	go l.listen()
	return l, nil
}

// Own says that a process makes domains whose refusals are wanted.
func (l *Log) Own(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own[pid] = true
}

func (l *Log) listen() {
	defer close(l.done)
	buf := make([]byte, 64<<10) // longer than any record (MAX_AUDIT_MESSAGE_LENGTH)
	for {
		n, err := l.socket.Read(buf)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			l.mu.Lock()
			l.missed = true
			l.mu.Unlock()
		case err != nil:
			return
		case n > headerSize:
			if kind := binary.NativeEndian.Uint16(buf[4:]); kind == unix.AUDIT_LANDLOCK_ACCESS || kind == unix.AUDIT_LANDLOCK_DOMAIN {
				if r, ok := parse(string(buf[headerSize:n])); ok {
					l.take(r)
				}
			}
		}
	}
}

func (l *Log) take(r line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.domains[r.domain]
	if d == nil {
		l.makeRoom()
		d = &domain{records: map[Record]uint64{}}
		l.domains[r.domain] = d
	}
	switch {
	case r.status == "allocated":
		d.pid = r.pid
	case r.status == "deallocated":
		d.ended, d.count = true, r.count
	case r.access.Blockers != "":
		d.arrived++
		if _, seen := d.records[r.access]; !seen && l.kept < maxRecords {
			d.records[r.access] = now()
			l.kept++
		}
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// makeRoom forgets other processes' domains: any number of them may come and go.
func (l *Log) makeRoom() {
	if l.kept < maxRecords/2 && len(l.domains) < maxRecords/2 {
		return
	}
	for name, d := range l.domains {
		if d.pid != 0 && !l.own[d.pid] {
			l.kept -= len(d.records)
			delete(l.domains, name)
		}
	}
}

// settling bounds how long Close waits for records that are on their way.
const settling = 2 * time.Second

// Close ends the log, and returns what the domains of Own's processes were refused. The
// kernel tells later than it refuses: call Close when the processes are gone, and it
// waits until their domains are too.
func (l *Log) Close() Refusals {
	end := time.After(settling)
	for waiting := true; waiting && !l.settled(); {
		select {
		case <-l.changed:
		case <-time.After(5 * time.Millisecond):
		case <-end:
			waiting = false
		}
	}
	l.socket.Close()
	<-l.done
	got := Refusals{Records: map[Record]uint64{}}
	for _, d := range l.domains {
		if !l.own[d.pid] {
			continue
		}
		for r, at := range d.records {
			got.Records[r] = at
		}
		if d.ended && d.count > d.arrived {
			got.Lost += d.count - d.arrived
		}
	}
	return got
}

// settled tells whether nothing is on its way: each of our domains has ended, or there is
// none and the kernel has sent everything.
func (l *Log) settled() bool {
	st, err := status()
	if err == nil && st.backlog > 0 {
		return false
	}
	time.Sleep(time.Millisecond) // the last one leaves the backlog before it is sent
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.domains {
		if l.own[d.pid] && !d.ended {
			return false
		}
	}
	return true
}

// auditStatus is what is used of struct audit_status (linux/audit.h).
type auditStatus struct{ enabled, backlog uint32 }

// status asks the kernel, which answers at once.
func status() (st auditStatus, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	ask := unix.NlMsghdr{Len: headerSize, Type: unix.AUDIT_GET, Flags: unix.NLM_F_REQUEST}
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, unsafe.Slice((*byte)(unsafe.Pointer(&ask)), headerSize), 0, kernel); err != nil {
		return st, err
	}
	buf := make([]byte, 4096)
	for range 4 { // an error, or the answer
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return st, err
		}
		switch kind := binary.NativeEndian.Uint16(buf[4:]); {
		case n >= headerSize+4 && kind == unix.NLMSG_ERROR:
			if errno := int32(binary.NativeEndian.Uint32(buf[headerSize:])); errno != 0 {
				return st, unix.Errno(-errno)
			}
		case n >= headerSize+32 && kind == unix.AUDIT_GET:
			field := func(i int) uint32 { return binary.NativeEndian.Uint32(buf[headerSize+4*i:]) }
			return auditStatus{enabled: field(1), backlog: field(7)}, nil
		}
	}
	return st, unix.EPROTO
}

func now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(ts.Nano())
}
