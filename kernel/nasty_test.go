//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	children["deep"] = func([]string) {
		fd := unix.AT_FDCWD
		for i := range 300 {
			check("mkdirat", unix.Mkdirat(fd, "d", 0o755))
			next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			check("openat", err)
			if i == 199 || i == 299 {
				f, err := unix.Openat(next, fmt.Sprintf("file%d", i+1), unix.O_CREAT, 0o600)
				check("openat", err)
				unix.Close(f)
			}
			fd = next
		}
	}
	children["deleted"] = func([]string) {
		check("write", os.WriteFile("f", []byte("x"), 0o600))
		f, err := unix.Open("f", unix.O_RDONLY, 0)
		check("open", err)
		check("unlink", unix.Unlink("f"))
		_, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", f), unix.O_RDONLY, 0)
		check("reopen", err)
		check("mkdir", os.Mkdir("gone", 0o755))
		check("chdir", os.Chdir("gone"))
		check("rmdir", unix.Rmdir("../gone"))
		unix.Open("x", unix.O_CREAT, 0o600)
	}
	children["mounts"] = func([]string) { // in a mount namespace of its own
		check("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		for _, d := range []string{"a", "b", "low", "up", "work", "over"} {
			check("mkdir", os.Mkdir(d, 0o755))
		}
		check("write", os.WriteFile("a/f", nil, 0o600))
		check("write", os.WriteFile("low/g", nil, 0o600))
		check("bind", unix.Mount("a", "b", "", unix.MS_BIND, ""))
		open("b/f")
		check("tmpfs", unix.Mount("tmpfs", "work", "tmpfs", 0, ""))
		check("mkdir", os.MkdirAll("work/up", 0o755))
		check("mkdir", os.MkdirAll("work/work", 0o755))
		err := unix.Mount("overlay", "over", "overlay", 0, "lowerdir=low,upperdir=work/up,workdir=work/work")
		if err == unix.ENODEV { // this kernel has no overlayfs
			return
		}
		check("overlay", err)
		open("over/g")
	}
	children["thread-exec"] = func([]string) {
		runtime.LockOSThread()
		done := make(chan bool)
		go func() { // not the main thread, which is locked
			runtime.LockOSThread()
			check("exec", syscall.Exec("/bin/true", []string{"true", "", "x"}, nil))
		}()
		<-done
	}
	if os.Getenv("KERNEL_TEST_CHILD") == "leader-gone" {
		runtime.LockOSThread() // init functions run on the leader
	}
	children["leader-gone"] = func([]string) {
		go func() {
			runtime.LockOSThread()
			for {
				b, err := os.ReadFile("/proc/self/stat")
				if err == nil && bytes.Contains(b, []byte(") Z ")) {
					break
				}
			}
			open("/dev/zero")
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 7, 0, 0)
		}()
		syscall.Syscall(syscall.SYS_EXIT, 5, 0, 0) // not the group
	}
	children["memfd-exec"] = func([]string) {
		fd, err := unix.MemfdCreate("payload", 0)
		check("memfd", err)
		b, err := os.ReadFile("/bin/true")
		check("read", err)
		unix.Write(fd, b)
		check("exec", syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"true"}, nil))
	}
	children["nested"] = func(args []string) {
		sub := filepath.Join(args[0], "sub")
		check("mkdir", os.Mkdir(sub, 0o755))
		check("move", os.WriteFile(sub+"/cgroup.procs", []byte("0"), 0))
		open("/dev/zero")
		check("move", os.WriteFile(args[0]+"/cgroup.procs", []byte("0"), 0))
		check("rmdir", os.Remove(sub))
	}
	children["joins"] = func(args []string) {
		check("join", os.WriteFile(args[0]+"/cgroup.procs", []byte("0"), 0))
		open("/dev/zero")
		check("leave", os.WriteFile(filepath.Dir(args[0])+"/cgroup.procs", []byte("0"), 0))
		open("/dev/full")
	}
	children["uring"] = func([]string) { check("io_uring", uringOpen("uring-file")) }
	children["signal"] = func([]string) {
		unix.Kill(os.Getpid(), unix.SIGKILL)
		time.Sleep(time.Minute)
	}
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

// observed runs a child in a session and returns the finished session and where it ran.
func observed(t *testing.T, name string, prepare func(s *session, c *exec.Cmd)) (*session, string, error) {
	t.Helper()
	s := observe(t, Config{})
	c := s.child(name)
	if prepare != nil {
		prepare(s, c)
	}
	c.Stdout = os.Stdout
	err := c.Run()
	s.end()
	dir, _ := filepath.EvalSymlinks(c.Dir)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.dump())
		}
	})
	return s, dir, err
}

func TestDeepDirectories(t *testing.T) {
	s, dir, err := observed(t, "deep", nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := dir + strings.Repeat("/d", 200) + "/file200"
	if got := s.find(KindOpen, path(whole)); len(got) != 1 || got[0].Truncated {
		t.Errorf("the 200 deep file: %d events", len(got))
	}
	got := s.find(KindOpen, func(e *Event) bool { return strings.HasSuffix(string(e.Path), "/file300") })
	if len(got) != 1 || !got[0].Truncated {
		t.Errorf("the 300 deep file is not marked: %d events", len(got))
	}
}

func TestDeletedFiles(t *testing.T) {
	s, dir, err := observed(t, "deleted", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.find(KindOpen, func(e *Event) bool { return e.Deleted && string(e.Path) == dir+"/f" }); len(got) != 1 {
		t.Errorf("reopening a deleted file: %d events", len(got))
	}
	if got := s.find(KindOpen, path(dir+"/gone/x")); len(got) != 1 || got[0].Errno != int32(unix.ENOENT) || !got[0].Unreachable {
		t.Errorf("open in a deleted directory: %d events", len(got))
	}
}

func TestMounts(t *testing.T) {
	s, dir, err := observed(t, "mounts", func(_ *session, c *exec.Cmd) { c.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/b/f", "/over/g"} {
		if p == "/over/g" && len(s.find(KindMount, func(e *Event) bool { return e.Errno == int32(unix.ENODEV) })) > 0 {
			t.Log("this kernel has no overlayfs")
			continue
		}
		if len(s.find(KindOpen, path(dir+p))) != 1 {
			t.Errorf("open of %s was not seen", p)
		}
	}
	if got := s.find(KindMount, nil); len(got) != 4 {
		t.Errorf("%d mounts, want 4", len(got))
	}
}

func TestLongArguments(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int
		cut   bool
	}{{"inline", 3000, false}, {"one chunk", 9000, false}, {"100 KiB", 100 << 10, false}, {"200 KiB", 200 << 10, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := observe(t, Config{})
			args := []string{"", strings.Repeat("x", 70000%c.bytes), ""}
			for n := len(args[1]); n < c.bytes; n += 100 {
				args = append(args, strings.Repeat("y", 99))
			}
			s.run(s.command("/bin/true", args...))
			s.end()
			e := s.find(KindExec, nil)[0]
			if e.ArgvTruncated != c.cut {
				t.Errorf("truncated %v, want %v", e.ArgvTruncated, c.cut)
			}
			want := append([]string{"/bin/true"}, args...)
			for i, a := range e.Argv {
				if i >= len(want) || string(a) != want[i] && !(c.cut && i == len(e.Argv)-1) {
					t.Fatalf("argument %d: %.20q", i, a)
				}
			}
			if !c.cut && len(e.Argv) != len(want) {
				t.Errorf("%d arguments of %d", len(e.Argv), len(want))
			}
		})
	}
}

func TestEnvironmentKeysOnly(t *testing.T) {
	s := observe(t, Config{})
	c := s.command("/bin/true")
	c.Env = []string{"A=secret1", "EMPTY=", "LONG=" + strings.Repeat("secret2", 2000), "TRACEPARENT=00-ab-cd-01", "B=secret3=x", "noequals",
		"ASSAY_TOOL_CALL_ID=call-7"}
	s.run(c)
	s.end()
	e := s.find(KindExec, nil)[0]
	if got := string(bytes.Join(e.EnvKeys, []byte(" "))); got != "A EMPTY LONG TRACEPARENT B ASSAY_TOOL_CALL_ID" {
		t.Errorf("keys %q", got)
	}
	if string(e.ToolCallID) != "call-7" || string(e.Traceparent) != "00-ab-cd-01" || e.EnvTruncated || e.Unreadable {
		t.Errorf("%s", describe(e))
	}
}

func TestMemfdExec(t *testing.T) {
	s, _, err := observed(t, "memfd-exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	execs := s.find(KindExec, nil)
	if last := execs[len(execs)-1]; !last.Memfd || string(last.Exe) != "/memfd:payload" {
		t.Errorf("%s", describe(last))
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
	got := s.find(KindIOUringOp, nil)
	if len(got) != 1 || got[0].Args[0] != 18 || !strings.HasSuffix(string(got[0].Path), "uring-file") || !got[0].NoResult {
		t.Fatalf("%d requests", len(got))
	}
	if !s.report.IOUringUsed {
		t.Error("the report does not say that io_uring was used")
	}
}

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
