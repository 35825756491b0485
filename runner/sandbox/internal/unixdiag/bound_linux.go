package unixdiag

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a socket that is bound to a path.
type Socket struct {
	// Name is the path as it was bound: it may be relative, and the file may have another name by now. An abstract name
	// begins with a NUL.
	Name string
	// Inode has the low bits of the file's inode number; 0: it is not known.
	Inode uint32
	// Device is the file system, as mountinfo names it; empty: it is not known.
	Device string
	// Type is SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET; 0: it is not known.
	Type int
	// Number is the socket's own inode number, which links in /proc/PID/fd have.
	Number uint32
}

// Bound lists the sockets that are bound to a path. Socket diagnostics report the file's inode; only root may
// ask for them in other network namespaces. Otherwise there are only the names.
func Bound() []Socket {
	var list []Socket
	seen := map[uint64]bool{}
	for _, pid := range Processes() {
		info, err := os.Stat(pid + "/net/unix") // which each network namespace has
		if err != nil || seen[info.Sys().(*syscall.Stat_t).Ino] {
			continue
		}
		seen[info.Sys().(*syscall.Stat_t).Ino] = true
		sockets, err := diagnose(pid)
		if err != nil {
			sockets = namesOf(pid)
		}
		list = append(list, sockets...)
	}
	return list
}

// Processes lists this process and all others in /proc.
func Processes() []string {
	all, _ := filepath.Glob("/proc/[0-9]*")
	return append([]string{"/proc/self"}, all...)
}

// namesOf lists the names in the network namespace of a process.
func namesOf(pid string) []Socket {
	var list []Socket
	b, _ := os.ReadFile(pid + "/net/unix")
	for line := range strings.Lines(string(b)) {
		// Columns: Num RefCount Protocol Flags Type St Inode Path. Num has no fixed width.
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ": ", 2)
		if len(f) < 2 {
			continue
		}
		rest := strings.TrimLeft(f[1], " ")
		for range 6 {
			_, rest, _ = strings.Cut(rest, " ")
			rest = strings.TrimLeft(rest, " ")
		}
		if rest != "" && rest[0] != '@' {
			list = append(list, Socket{Name: rest})
		}
	}
	return list
}

// Constants of linux/unix_diag.h.
const (
	diagShow   = 3 // UDIAG_SHOW_NAME | UDIAG_SHOW_VFS
	diagName   = 0
	diagVFS    = 1
	sizeofDiag = 16 // struct unix_diag_msg
)

// diagnose lists the sockets that are bound to a path in the network namespace of a process.
func diagnose(pid string) ([]Socket, error) {
	fd, err := diagSocket(pid)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	list, err := Ask(fd)
	return slices.DeleteFunc(list, func(s Socket) bool { return s.Inode == 0 || s.Name == "" }), err
}

// Ask asks the kernel for the sockets in the network namespace of fd, which is a socket of netlink(7) for
// NETLINK_SOCK_DIAG. Sockets without a name have none here either. It is not safe for concurrent use of one fd.
func Ask(fd int) ([]Socket, error) {
	request := make([]byte, unix.SizeofNlMsghdr+24) // struct unix_diag_req
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.SizeofNlMsghdr:]
	body[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(body[4:], ^uint32(0)) // every state
	binary.NativeEndian.PutUint32(body[12:], diagShow)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var list []Socket
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		more, done, err := decode(buf[:n])
		if list = append(list, more...); err != nil || done {
			return list, err
		}
	}
}

// decode decodes the messages of one answer. done means that no other answer follows.
func decode(b []byte) (list []Socket, done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return list, false, unix.EBADMSG
		}
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return list, true, nil
		case unix.NLMSG_ERROR: // no module for unix sockets
			return list, false, unix.EOPNOTSUPP
		}
		list = append(list, decodeDiag(b[unix.SizeofNlMsghdr:size]))
		b = b[min(len(b), align4(size)):]
	}
	return list, false, nil
}

func align4(n int) int { return (n + 3) &^ 3 }

// decodeDiag decodes a struct unix_diag_msg with its attributes.
func decodeDiag(b []byte) (s Socket) {
	if len(b) >= sizeofDiag {
		s.Type, s.Number = int(b[1]), binary.NativeEndian.Uint32(b[4:])
	}
	for b = b[min(len(b), sizeofDiag):]; len(b) >= 4; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return Socket{}
		}
		switch value := b[4:size]; binary.NativeEndian.Uint16(b[2:]) {
		case diagName:
			s.Name = string(value)
			if len(value) > 0 && value[0] != 0 {
				s.Name = string(bytes.TrimRight(value, "\x00"))
			}
		case diagVFS:
			if len(value) >= 8 {
				dev := binary.NativeEndian.Uint32(value[4:]) // as the kernel itself has it: 12 and 20 bits
				s.Inode, s.Device = binary.NativeEndian.Uint32(value), fmt.Sprintf("%d:%d", dev>>20, dev&(1<<20-1))
			}
		}
		b = b[min(len(b), align4(size)):]
	}
	return s
}

// diagSocket opens a socket for diagnostics in the network namespace of a process.
func diagSocket(pid string) (fd int, err error) {
	open := func() error {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
		return err
	}
	if pid == "/proc/self" {
		return fd, open()
	}
	ns, err := unix.Open(pid+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ns)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- open()
	}()
	return fd, <-done
}
