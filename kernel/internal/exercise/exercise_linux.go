// Package exercise is the child process of the observer's self-test: this very
// program, started under another name, which this package's init function takes
// over. It imports little so that it comes first: the packages of the rest of
// the program take longer to initialize than the whole exercise.
package exercise

import (
	"os"

	"golang.org/x/sys/unix"
)

// Name is argv[0], and all of the arguments, of the process that exercises the
// hooks and exits.
const Name = "assay-run-self-test"

func init() {
	if len(os.Args) == 1 && os.Args[0] == Name {
		run()
		os.Exit(0)
	}
}

// run makes every required hook fire and changes nothing: names are empty,
// so that the calls fail after the hook's point, and files are anonymous. A
// move between cgroups is left out: it takes the kernel 20 ms.
func run() {
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
	datagram(unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	datagram(unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte{15: 1}})
}

// datagram sends one byte to itself over loopback, unconnected and connected.
func datagram(family int, any unix.Sockaddr) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	unix.Bind(fd, any)
	self, err := unix.Getsockname(fd)
	if err != nil {
		return
	}
	unix.Sendto(fd, []byte{0}, 0, self)
	unix.Connect(fd, self)
}
