package auditlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errOff is the error of Open if auditing is off.
var errOff = errors.New("auditing is off")

const (
	groupReadLog = 1       // AUDIT_NLGRP_READLOG, which needs CAP_AUDIT_READ
	buffer       = 4 << 20 // bytes, for records that arrive while this process is not scheduled
	maxRecords   = 20_000  // different records kept at a time
	headerSize   = 16      // struct nlmsghdr
)

// Log collects the audit's Landlock records since Open.
type Log struct {
	socket *os.File
	raw    syscall.RawConn // the socket's
	done   chan struct{}
	lost   uint32 // records that the kernel lost before Open

	mu      sync.Mutex // guards the rest, and reading
	buf     []byte
	own     map[int]bool
	domains map[string]*domain
	kept    int  // records in all domains
	missed  bool // this process was too slow to read all records
}

// domain is what the kernel refused to one Landlock domain.
type domain struct {
	pid     int // process that made it; 0: not known yet
	since   time.Time
	ended   bool
	arrived uint64
	count   uint64 // refusals, reported when the domain ends
	records map[Record]uint64
}

// Refusals are the accesses that the kernel refused to the domains of some processes.
type Refusals struct {
	// Records maps each refused access to its first time, in nanoseconds of CLOCK_BOOTTIME.
	Records map[Record]uint64
	// Lost counts the refusals without a record.
	Lost uint64
	// Unsure means that the audit lost records, so more refusals may lack one.
	Unsure bool
}

// Open starts to listen. The error wraps errOff, or is the kernel's error if this process may not listen.
func Open() (*Log, error) {
	st, err := status()
	if err != nil {
		return nil, fmt.Errorf("audit status: %w", err)
	}
	if st.enabled == 0 {
		return nil, errOff
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
		socket: os.NewFile(uintptr(fd), "audit"), done: make(chan struct{}), lost: st.lost,
		buf: make([]byte, 64<<10), // longer than any record (MAX_AUDIT_MESSAGE_LENGTH)
		own: map[int]bool{}, domains: map[string]*domain{},
	}
	if l.raw, err = l.socket.SyscallConn(); err != nil {
		l.socket.Close()
		return nil, fmt.Errorf("audit socket: %w", err)
	}
	go l.listen()
	return l, nil
}

// Own makes Close return the refusals of the domains that process pid makes.
func (l *Log) Own(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own[pid] = true
}

func (l *Log) listen() {
	defer close(l.done)
	_ = l.raw.Read(func(fd uintptr) bool {
		l.read(fd)
		return false // keep reading until the socket is closed
	})
}

// read reads the records that have arrived.
func (l *Log) read(fd uintptr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		n, _, err := unix.Recvfrom(int(fd), l.buf, 0)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			l.missed = true
		case errors.Is(err, unix.EINTR):
		case err != nil: // EAGAIN: no more
			return
		case n > headerSize:
			if kind := binary.NativeEndian.Uint16(l.buf[4:]); kind == unix.AUDIT_LANDLOCK_ACCESS ||
				kind == unix.AUDIT_LANDLOCK_DOMAIN {
				if r, ok := parse(string(l.buf[headerSize:n])); ok {
					l.take(r)
				}
			}
		}
	}
}

func (l *Log) take(r line) {
	d := l.domains[r.domain]
	if d == nil {
		l.makeRoom()
		d = &domain{since: time.Now(), records: map[Record]uint64{}}
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
}

// makeRoom drops the domains of other processes, of which there may be any number.
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

// settling limits how long Close waits for records that the kernel has not sent yet.
const settling = 2 * time.Second

// Close ends the log, and returns the refusals of the domains of the processes given to Own. The kernel sends a
// record some time after the refusal. So call Close when the processes have ended: it waits until their domains have
// ended too.
func (l *Log) Close() Refusals {
	begin := time.Now()
	sent, settled := l.settled()
	for !settled && time.Since(begin) < settling {
		time.Sleep(time.Millisecond)
		sent, settled = l.settled()
	}
	st, err := status()
	l.socket.Close()
	<-l.done
	got := Refusals{Records: map[Record]uint64{}, Unsure: !sent || l.missed || err != nil || st.lost != l.lost}
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

// settled reports whether the kernel has sent all records so far, and whether no more will come because each own
// domain has ended.
//
// A record leaves the kernel's backlog shortly before it arrives. A domain's first refusal has two records, so at any
// time one of them is in the backlog or has arrived; the second names the process. A domain from before Open has no
// second record.
func (l *Log) settled() (sent, settled bool) {
	st, err := status()
	if err != nil || st.backlog > 0 {
		return false, false
	}
	_ = l.raw.Control(l.read)
	l.mu.Lock()
	defer l.mu.Unlock()
	settled = true
	for _, d := range l.domains {
		switch {
		case d.pid == 0 && time.Since(d.since) < settling, l.own[d.pid] && !d.ended:
			settled = false
		}
	}
	return true, settled
}

// auditStatus has the fields of struct audit_status (linux/audit.h) that are used.
type auditStatus struct{ enabled, lost, backlog uint32 }

// status asks the kernel for the audit's status. The kernel answers at once.
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
	for range 4 { // the kernel sends an acknowledgement and the answer
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
			return auditStatus{enabled: field(1), lost: field(6), backlog: field(7)}, nil
		}
	}
	return st, unix.EPROTO
}

func now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return uint64(ts.Nano())
}
