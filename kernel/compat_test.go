//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
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
	call(10, (long)"compat-file", 0, 0);
	call(1, 0, 0, 0);
}`), 0o600)
	if out, err := exec.Command("gcc", "-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie", "-o", dir+"/c", src).CombinedOutput(); err != nil {
		t.Skipf("no 32-bit compiler: %v %s", err, out)
	}
	s := observe(t, Config{})
	c := s.command(dir + "/c")
	c.Dir = dir
	s.run(c)
	s.end()
	if got := s.find(KindOpen, path(dir+"/compat-file")); len(got) != 1 || got[0].Syscall != "open" || got[0].Mode != 0o600 {
		t.Errorf("%d opens\n%s", len(got), s.dump())
	}
	if len(s.find(KindUnlink, path(dir+"/compat-file"))) != 1 {
		t.Error("the unlink was not seen")
	}
}
