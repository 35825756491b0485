//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	children["uring"] = func([]string) {
		path := append([]byte("uring-file"), 0)
		var sqe [64]byte
		sqe[0] = 18 // IORING_OP_OPENAT
		le.PutUint32(sqe[4:], uint32(0xffffff9c))
		le.PutUint64(sqe[16:], uint64(uintptr(unsafe.Pointer(&path[0]))))
		le.PutUint32(sqe[24:], 0o600)
		le.PutUint32(sqe[28:], unix.O_CREAT|unix.O_WRONLY)
		check("io_uring", uring(sqe))
		runtime.KeepAlive(path)
	}
	children["uring-then-connect"] = func([]string) {
		runtime.LockOSThread()
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		check("socket", err)
		addr := unix.RawSockaddrUnix{Family: unix.AF_UNIX, Path: [108]int8{'n'}}
		var sqe [64]byte
		sqe[0] = 16 // IORING_OP_CONNECT
		le.PutUint32(sqe[4:], uint32(fd))
		le.PutUint64(sqe[8:], uint64(unsafe.Sizeof(addr)))
		le.PutUint64(sqe[16:], uint64(uintptr(unsafe.Pointer(&addr))))
		check("io_uring", uring(sqe))
		runtime.KeepAlive(&addr)
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		check("socket", err)
		check("connect", unix.Connect(fd, &unix.SockaddrInet4{Port: 40020, Addr: [4]byte{127, 0, 0, 1}}))
	}
}

// uring submits one request to an io_uring of its own and waits for it.
func uring(sqe [64]byte) error {
	var p [120]byte // struct io_uring_params
	fd, _, e := syscall.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return e
	}
	ring, err := unix.Mmap(int(fd), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	sqes, err := unix.Mmap(int(fd), 0x10000000, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	copy(sqes, sqe[:])
	tail, array := le.Uint32(p[44:]), le.Uint32(p[64:]) // sq_off.tail, sq_off.array
	le.PutUint32(ring[array:], 0)
	le.PutUint32(ring[tail:], 1)
	if _, _, e = syscall.Syscall6(unix.SYS_IO_URING_ENTER, fd, 1, 1, 1, 0, 0); e != 0 {
		return e
	}
	return nil
}

// A connect through io_uring that never comes to the hook of its address family
// leaves nothing for the next one that is made as a system call.
func TestConnectAfterIOUring(t *testing.T) {
	s, _, err := observed(t, "uring-then-connect", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := s.find(KindConnect, func(e *Event) bool { return e.Remote.Port() == 40020 })
	if len(got) != 1 || got[0].NoResult || got[0].FromUser {
		t.Errorf("%d connects", len(got))
	}
}

func TestIOUring(t *testing.T) {
	s, dir, err := observed(t, "uring", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "uring-file")); err != nil {
		t.Fatal(err)
	}
	got := s.find(KindOpen, func(e *Event) bool { return e.Syscall == uringSyscall })
	if len(got) != 1 || got[0].Flags == 0 || !strings.HasSuffix(string(got[0].Path), "uring-file") || got[0].NoResult || got[0].Ret < 3 || got[0].PathSource != PathKernelObject {
		t.Fatalf("%d requests", len(got))
	}
	if !s.report.IOUringUsed {
		t.Error("the report does not say that io_uring was used")
	}
}
