package exercise

import (
	"encoding/binary"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// Name is what the process is called. It is argv[0] where the processes of this program execute
// no list that they get, but they know this one.
const Name = "assay-run-self-test"

// What the host does not have, and the process's exit status is the sum of: none
// is what a program that fails exits with.
const (
	NoIPv6 = 16 << iota
	NoTCP  // over loopback
)

// Descriptors of the process.
const (
	Threads  = 3 // of its own cgroup's cgroup.threads
	Exercise = 4 // of the list
)

// Args are its arguments: more than one record of the exec hook's holds.
func Args() []string { return arguments(steps.Refused()) }

func arguments(refused bool) []string {
	long := strings.Repeat(".", 4096)
	if refused {
		return []string{Name, long}
	}
	return steps.Args(Exercise, Name, long)
}

func init() {
	steps.Enter()
	if len(os.Args) == 2 && os.Args[0] == Name {
		runtime.LockOSThread()
		List().Run()
		os.Exit(1)
	}
}

// exercises are the steps, in a list that nothing stops.
type exercises struct {
	*steps.List
	fd   steps.Ref // a word
	zero steps.Ref // a byte
}

// try makes a call, whatever comes of it.
func (e *exercises) try(nr int, args ...any) steps.Step {
	return e.Call(nr, args...).Ignore(steps.AnyErrno)
}

// List makes every required hook fire and changes nothing: names are empty,
// so that the calls fail after the hook's point, files are anonymous, and the
// cgroup that it moves to is its own. The process's thread moves: for a whole
// process the kernel would first stop all forks on the host, which takes it 20 ms.
func List() *steps.List {
	l := steps.New()
	e := &exercises{l, l.Word(0), l.Space(1)}
	none, here := l.Strings(nil), unix.AT_FDCWD
	e.try(unix.SYS_WRITE, Threads, "0", 1)
	e.open(unix.SYS_OPENAT, here, "/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	e.try(unix.SYS_CLOSE, steps.Value(e.fd))
	e.try(unix.SYS_EXECVE, "", none, none)
	e.try(unix.SYS_RENAMEAT, here, "", here, "")
	e.try(unix.SYS_UNLINKAT, here, "", 0)
	e.try(unix.SYS_LINKAT, here, "", here, "", 0)
	e.try(unix.SYS_MKDIRAT, here, "", 0)
	e.try(unix.SYS_TRUNCATE, "", 0)
	e.try(unix.SYS_FCHMODAT, here, "", 0)
	e.try(unix.SYS_CHDIR, ".")
	e.try(unix.SYS_UNSHARE, 0)
	e.memory()
	lacks := l.Word(0)
	lack := func(what int) { l.Make(lacks, steps.Value(lacks), 0, ^uint64(0), what) }
	e.datagrams(loopback(0), loopback(discard), func() {})
	e.datagrams(loopback6(0), loopback6(discard), func() { lack(NoIPv6) })
	e.refused(func() { lack(NoTCP) })
	l.Call(unix.SYS_EXIT_GROUP, steps.Value(lacks))
	return l
}

// open makes a call that returns a descriptor. Where it fails, there is none.
func (e *exercises) open(nr int, args ...any) steps.Step {
	e.Set(e.fd, -1)
	return e.try(nr, args...).Into(e.fd)
}

// memory writes to a file that is in memory, and maps it.
func (e *exercises) memory() {
	at := e.Word(0)
	fd := steps.Value(e.fd)
	e.open(unix.SYS_MEMFD_CREATE, Name, unix.MFD_CLOEXEC)
	e.try(unix.SYS_WRITE, fd, e.zero, 1)
	e.try(unix.SYS_MMAP, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0).Into(at)
	e.try(unix.SYS_MUNMAP, steps.Value(at), 1)
	e.try(unix.SYS_CLOSE, fd)
}

const discard = 9 // RFC 863

// loopback is a sockaddr_in.
func loopback(port byte) []byte {
	b := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	b[3] = port
	copy(b[4:], []byte{127, 0, 0, 1})
	return b
}

// loopback6 is a sockaddr_in6.
func loopback6(port byte) []byte {
	b := make([]byte, unix.SizeofSockaddrInet6)
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	b[3] = port
	b[8+15] = 1 // ::1
	return b
}

// datagrams sends one byte to itself over loopback, unconnected and connected, or
// to away where it can have no address. lack is for where there are no such sockets.
func (e *exercises) datagrams(any, away []byte, lack func()) {
	fd, to, size := steps.Value(e.fd), e.Bytes(away), len(any)
	none, send, done := e.Label(), e.Label(), e.Label()
	family := int(binary.NativeEndian.Uint16(any))
	e.Call(unix.SYS_SOCKET, family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).Into(e.fd).On(none, steps.AnyErrno)
	e.Call(unix.SYS_BIND, fd, e.Bytes(any), size).On(send, steps.AnyErrno)
	e.try(unix.SYS_GETSOCKNAME, fd, to, e.Word(uint64(size)))
	e.At(send)
	e.try(unix.SYS_SENDTO, fd, e.zero, 1, 0, to, size)
	e.try(unix.SYS_CONNECT, fd, to, size)
	e.try(unix.SYS_CLOSE, fd)
	e.Goto(done)
	e.At(none)
	lack()
	e.At(done)
}

// refused connects to a port of its own where nobody listens. lack is for where no
// connection was even begun. The end of the process ends what a firewall left unanswered.
func (e *exercises) refused(lack func()) {
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	any := loopback(0)
	port, to, size := e.Word(0), e.Bytes(any), len(any)
	none, done := e.Label(), e.Label()
	e.OnError(none)
	e.Call(unix.SYS_SOCKET, unix.AF_INET, kind, 0).Into(port)
	e.Call(unix.SYS_SOCKET, unix.AF_INET, kind, 0).Into(e.fd)
	e.try(unix.SYS_BIND, steps.Value(port), to, size)
	e.Call(unix.SYS_GETSOCKNAME, steps.Value(port), to, e.Word(uint64(size)))
	e.Call(unix.SYS_CONNECT, steps.Value(e.fd), to, size).On(done, unix.EINPROGRESS, unix.ECONNREFUSED)
	e.At(none)
	lack()
	e.At(done)
}
