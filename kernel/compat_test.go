//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// A 32-bit program's calls are decoded as the native ones are.
func TestCompatProgram(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("32-bit arm programs are counted only")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "c.c")
	os.WriteFile(src, []byte(`
static long call(long n, long a, long b, long c) {
	long r;
	asm volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory");
	return r;
}
void _start(void) {
	call(5, (long)"compat-file", 0101, 0600);
	call(193, (long)"compat-file", 5, 1); /* truncate64 */
	call(10, (long)"compat-file", 0, 0);
	int inet[] = {2, 2, 0};
	int fd = call(102, 1, (long)inet, 0); /* socketcall: socket */
	struct { unsigned short family, port; unsigned addr, zero[2]; } to = {2, 0x4a9c, 0x0100007f};
	int connect[] = {fd, (int)&to, sizeof(to)};
	call(102, 3, (long)connect, 0);
	to.port = 0x4b9c;
	int sendto[] = {fd, (int)"hello", 5, 0, (int)&to, sizeof(to)};
	call(102, 11, (long)sendto, 0);
	call(102, 3, -4096, 0);
	call(1, 0, 0, 0);
}`), 0o600)
	if out, err := exec.Command("gcc", "-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie", "-o",
		dir+"/c", src).CombinedOutput(); err != nil {
		t.Skipf("no 32-bit compiler: %v %s", err, out)
	}
	bare := exec.Command(dir + "/c")
	if bare.Dir = dir; errors.Is(bare.Run(), unix.ENOEXEC) {
		t.Skip("this kernel executes no 32-bit programs")
	}
	os.Remove(dir + "/compat-file")
	s := observe(t, Config{})
	c := s.command(dir + "/c")
	c.Dir = dir
	s.run(c)
	s.end()
	if got := s.find(schema.KindOpen, path(dir+"/compat-file")); len(got) != 1 || got[0].Syscall != "open" ||
		got[0].Mode != 0o600 {
		t.Errorf("%d opens\n%s", len(got), s.dump())
	}
	if len(s.find(schema.KindUnlink, path(dir+"/compat-file"))) != 1 {
		t.Error("the unlink was not seen")
	}
	if got := s.find(schema.KindTruncate, nil); len(got) != 1 || got[0].Arg(0) != 1<<32+5 {
		t.Errorf("%d truncations", len(got))
	}
	at := func(port uint16) func(*Event) bool {
		return func(e *Event) bool { return e.Peer == netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) }
	}
	if got := s.find(schema.KindConnect, at(40010)); len(got) != 1 || got[0].Syscall != "connect" || got[0].FromUser {
		t.Errorf("%d connects", len(got))
	}
	if got := s.find(schema.KindSendto, at(40011)); len(got) != 1 || got[0].BytesOut != 5 || got[0].FromUser {
		t.Errorf("%d datagrams", len(got))
	}
	// What cannot be read is said not to have been decoded.
	if got := s.find(schema.KindCompatSyscall, nil); len(got) != 1 || got[0].Syscall != "socketcall" ||
		got[0].Errno != int32(unix.EFAULT) {
		t.Errorf("%d calls that were not decoded", len(got))
	}
	if t.Failed() {
		t.Log(s.dump())
	}
}

// The end of a signal handler has no number, and is none of x32's calls.
func TestSignalHandlersAreNoCompatCalls(t *testing.T) {
	s := observe(t, Config{})
	s.run(s.command("/bin/sh", "-c", "trap : USR1; kill -USR1 $$; kill -USR1 $$"))
	s.end()
	if h := s.report.Hooks[HookUnmodelled]; h.Fired != 0 {
		t.Errorf("%d calls were counted", h.Fired)
	}
}
