// Package exercise is the child process of the observer's self-test: this very
// program, started under another name, which this package's init function takes
// over. It imports little so that it comes first: the packages of the rest of
// the program take longer to initialize than the whole exercise.
package exercise

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Name is argv[0] of the process that exercises the hooks and exits.
const Name = "assay-run-self-test"

// What the host does not have, and the process's exit status is the sum of: none
// is what a program that fails exits with.
const (
	NoIPv6 = 16 << iota
	NoTCP  // over loopback
)

// Args are its arguments: more than one record of the exec hook's holds.
func Args() []string { return []string{Name, strings.Repeat(".", 4096)} }

// Threads is the descriptor of its own cgroup's cgroup.threads.
const Threads = 3

func init() {
	if len(os.Args) == 2 && os.Args[0] == Name {
		os.Exit(run())
	}
}

// run makes every required hook fire and changes nothing: names are empty,
// so that the calls fail after the hook's point, files are anonymous, and the
// cgroup that it moves to is its own. One of its threads moves: for a whole
// process the kernel would first stop all forks on the host, which takes it 20 ms.
func run() (lacks int) {
	unix.Write(Threads, []byte("0"))
	if fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
	}
	unix.Exec("", nil, nil)
	unix.Renameat(unix.AT_FDCWD, "", unix.AT_FDCWD, "")
	unix.Unlinkat(unix.AT_FDCWD, "", 0)
	unix.Linkat(unix.AT_FDCWD, "", unix.AT_FDCWD, "", 0)
	unix.Mkdirat(unix.AT_FDCWD, "", 0)
	unix.Truncate("", 0)
	unix.Fchmodat(unix.AT_FDCWD, "", 0, 0)
	unix.Chdir(".")
	unix.Unshare(0)
	if fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC); err == nil {
		unix.Write(fd, []byte{0})
		if b, err := unix.Mmap(fd, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			unix.Munmap(b)
		}
		unix.Close(fd)
	}
	datagram(unix.AF_INET, loopback, &unix.SockaddrInet4{Addr: loopback.Addr, Port: discard})
	if !datagram(unix.AF_INET6, loopback6, &unix.SockaddrInet6{Addr: loopback6.Addr, Port: discard}) {
		lacks |= NoIPv6
	}
	if !refused() {
		lacks |= NoTCP
	}
	return lacks
}

var (
	loopback  = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	loopback6 = &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
)

const discard = 9 // RFC 863

// datagram sends one byte to itself over loopback, unconnected and connected, or
// to away where it can have no address. False: there are no such sockets.
func datagram(family int, any, away unix.Sockaddr) bool {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	to := away
	if unix.Bind(fd, any) == nil {
		if self, err := unix.Getsockname(fd); err == nil {
			to = self
		}
	}
	unix.Sendto(fd, []byte{0}, 0, to)
	unix.Connect(fd, to)
	return true
}

// refused connects to a port of its own where nobody listens. False: no
// connection was even begun.
func refused() bool {
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	port, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		return false
	}
	defer unix.Close(port)
	fd, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) // which ends what a firewall left unanswered
	unix.Bind(port, loopback)
	to, err := unix.Getsockname(port)
	if err != nil {
		return false
	}
	err = unix.Connect(fd, to)
	return err == unix.EINPROGRESS || err == unix.ECONNREFUSED
}
