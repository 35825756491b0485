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
	children["uring"] = func([]string) { check("io_uring", uringOpen("uring-file")) }
}

// uringOpen creates a file through io_uring.
func uringOpen(name string) error {
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
	path := append([]byte(name), 0)
	sqes[0] = 18 // IORING_OP_OPENAT
	le.PutUint32(sqes[4:], uint32(0xffffff9c))
	le.PutUint64(sqes[16:], uint64(uintptr(unsafe.Pointer(&path[0]))))
	le.PutUint32(sqes[24:], 0o600)
	le.PutUint32(sqes[28:], unix.O_CREAT|unix.O_WRONLY)
	tail, array := le.Uint32(p[44:]), le.Uint32(p[64:]) // sq_off.tail, sq_off.array
	le.PutUint32(ring[array:], 0)
	le.PutUint32(ring[tail:], 1)
	if _, _, e = syscall.Syscall6(unix.SYS_IO_URING_ENTER, fd, 1, 1, 1, 0, 0); e != 0 {
		return e
	}
	runtime.KeepAlive(path)
	return nil
}

func TestIOUring(t *testing.T) {
	s, dir, err := observed(t, "uring", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "uring-file")); err != nil {
		t.Fatal(err)
	}
	got := s.find(KindIOUringOp, nil)
	if len(got) != 1 || got[0].Args[0] != 18 || !strings.HasSuffix(string(got[0].Path), "uring-file") || !got[0].NoResult {
		t.Fatalf("%d requests", len(got))
	}
	if !s.report.IOUringUsed {
		t.Error("the report does not say that io_uring was used")
	}
}
