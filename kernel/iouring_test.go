//go:build linux && (amd64 || arm64)

package kernel

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
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
	// uring-accepts N [apart]: has N accepts under way until its input ends, each
	// with a number of its own if they are to be told apart.
	children["uring-accepts"] = func(args []string) {
		n, _ := strconv.Atoi(args[0])
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		check("socket", err)
		check("bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		check("listen", unix.Listen(fd, 1))
		const each = 1024
		r, err := newQueue(each)
		check("io_uring", err)
		for done := 0; done < n; done += each {
			sqes := make([][64]byte, min(each, n-done))
			for i := range sqes {
				sqes[i][0] = 13 // IORING_OP_ACCEPT
				le.PutUint32(sqes[i][4:], uint32(fd))
				if len(args) > 1 {
					le.PutUint64(sqes[i][32:], uint64(done+i))
				}
			}
			check("submit", r.submit(0, sqes...))
		}
		os.Stdout.Write([]byte{'.'})
		io.Copy(io.Discard, os.Stdin)
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

// queue is an io_uring.
type queue struct {
	fd          uintptr
	mem, sqes   []byte
	tail, array uint32 // where they are in mem
	sent        uint32
}

func newQueue(entries uint32) (*queue, error) {
	var p [120]byte // struct io_uring_params
	fd, _, e := syscall.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return nil, e
	}
	r := &queue{fd: fd, tail: le.Uint32(p[44:]), array: le.Uint32(p[64:])} // sq_off.tail, sq_off.array
	var err error
	if r.mem, err = unix.Mmap(int(fd), 0, int(r.array+4*entries), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return nil, err
	}
	r.sqes, err = unix.Mmap(int(fd), 0x10000000, int(64*entries), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	return r, err
}

// submit submits as many requests as there are, and waits for so many to end.
func (r *queue) submit(wait int, sqes ...[64]byte) error {
	for i, sqe := range sqes {
		copy(r.sqes[64*i:], sqe[:])
		le.PutUint32(r.mem[r.array+4*uint32(i):], uint32(i))
	}
	r.sent += uint32(len(sqes))
	le.PutUint32(r.mem[r.tail:], r.sent)
	_, _, e := syscall.Syscall6(unix.SYS_IO_URING_ENTER, r.fd, uintptr(len(sqes)), uintptr(wait), 1, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// uring submits one request to an io_uring of its own and waits for it.
func uring(sqe [64]byte) error {
	r, err := newQueue(4)
	if err != nil {
		return err
	}
	return r.submit(1, sqe)
}

// A session that has more requests under way than there is room for says so, and
// takes no room from another.
func TestIOUringBeyondItsRoom(t *testing.T) {
	for _, args := range [][]string{{strconv.Itoa(requestsMost + 16)}, {strconv.Itoa(acceptsMost + 16), "apart"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) { crowd(t, args) })
	}
}

func crowd(t *testing.T, args []string) {
	loud, quiet := observe(t, Config{}), observe(t, Config{})
	c := loud.child("uring-accepts", args...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // they are under way
		t.Fatal(err)
	}
	quiet.run(quiet.child("uring"))
	in.Close()
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	loud.end()
	quiet.end()
	if !slices.ContainsFunc(loud.report.Reasons, func(r Reason) bool { return r.Code == CodeFailedReads }) {
		t.Errorf("what was lost is not in the reasons: %+v", loud.report.Reasons)
	}
	opens := quiet.find(schema.KindOpen, func(e *Event) bool { return e.Syscall == uringSyscall })
	if len(quiet.report.Reasons) != 0 || len(opens) != 1 || !opens[0].HasResult {
		t.Errorf("the other session: %d opens, %+v", len(opens), quiet.report.Reasons)
	}
}

// A connect through io_uring that never comes to the hook of its address family
// leaves nothing for the next one that is made as a system call.
func TestConnectAfterIOUring(t *testing.T) {
	s, _, err := observed(t, "uring-then-connect", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := s.find(schema.KindConnect, func(e *Event) bool { return e.Peer.Port() == 40020 })
	if len(got) != 1 || !got[0].HasResult || got[0].FromUser {
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
	got := s.find(schema.KindOpen, func(e *Event) bool { return e.Syscall == uringSyscall })
	if len(got) != 1 || got[0].Flags == 0 || !strings.HasSuffix(got[0].Value, "uring-file") || !got[0].HasResult ||
		got[0].Result < 3 || !got[0].KernelObject() {
		t.Fatalf("%d requests", len(got))
	}
	if !s.report.IOUringUsed {
		t.Error("the report does not say that io_uring was used")
	}
}
