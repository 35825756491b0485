//go:build linux && (amd64 || arm64)

package kernel

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// A child of these tests makes objects under names that follow from its
// arguments, one after the other, so that the kernel has every reason to give
// one's memory to the next. The names that were recorded are compared with those
// that the child used, which it writes to its output, "kind path" a line.

func init() {
	children["reuse"] = func(args []string) {
		n, err := strconv.Atoi(args[0])
		check("count", err)
		done := newTruth()
		for i := range n {
			oneOfEach(done, fmt.Sprintf("x%d", i))
		}
		done.flush()
	}
	children["garbage"] = func([]string) {
		writeWith("f", func(uintptr) {})
		for i := range uintptr(5) {
			unix.Close(int(raw("openat", atFDCWD, cstr("f"), i<<32, 0x1234+i)))
		}
		for i := range uintptr(3) {
			unix.Close(int(raw("openat", atFDCWD, cstr("f"), unix.O_CREAT, 0o600|i<<32)))
		}
		how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644, Resolve: unix.RESOLVE_BENEATH}
		raw("openat2", dirfd("."), cstr("g"), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how))
	}
	children["sockets"] = func(args []string) {
		n, err := strconv.Atoi(args[0])
		check("count", err)
		done := newTruth()
		for i := range n {
			connectOnce(done, fmt.Sprintf("s%d", i))
		}
		done.flush()
	}
	children["pressure"] = func(args []string) {
		n, err := strconv.Atoi(args[0])
		check("count", err)
		done := newTruth()
		for i := range n {
			dir := fmt.Sprintf("d%d", i)
			check("mkdir", unix.Mkdir(dir, 0o700))
			done.add("mkdir", dir)
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			check("open", err)
			done.add("openat", dir)
			f, err := unix.Openat(fd, "same", unix.O_CREAT|unix.O_WRONLY, 0o600)
			check("openat", err)
			done.add("openat", dir+"/same")
			unix.Close(f)
			unix.Close(fd)
		}
		for i := range n {
			dir := fmt.Sprintf("d%d", i)
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			check("open", err)
			unix.Openat(fd, "none", unix.O_RDONLY, 0)
			done.add("openat", dir+"/none")
			check("unlinkat", unix.Unlinkat(fd, "same", 0))
			done.add("unlink", dir+"/same")
			unix.Close(fd)
		}
		done.flush()
	}
	children["proc"] = func(args []string) {
		n, err := strconv.Atoi(args[0])
		check("count", err)
		done := newTruth()
		for range n {
			c := exec.Command("/bin/true")
			check("start", c.Start())
			dir := fmt.Sprintf("/proc/%d", c.Process.Pid)
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			check("open", err)
			done.add("openat", dir)
			unix.Openat(fd, "nonexist", unix.O_RDONLY, 0)
			done.add("openat", dir+"/nonexist")
			f, err := unix.Openat(fd, "status", unix.O_RDONLY, 0)
			check("openat", err)
			done.add("openat", dir+"/status")
			unix.Close(f)
			unix.Close(fd)
			check("wait", c.Wait())
		}
		done.flush()
	}
}

// truth is what a child did, with paths as it wrote them.
type truth struct{ out *bufio.Writer }

func newTruth() truth { return truth{bufio.NewWriter(os.Stdout)} }

func (t truth) add(kind, path string) { fmt.Fprintln(t.out, kind, path) }
func (t truth) flush()                { check("write", t.out.Flush()) }

// oneOfEach makes, changes and removes objects by every kind of call, by name and
// relative to a directory, which fail and succeed.
func oneOfEach(done truth, name string) {
	at := func(kind, name string, call string, args ...uintptr) {
		raw(call, args...)
		done.add(kind, name)
	}
	connectOnce(done, name)
	at("mkdir", name, "mkdir", cstr(name), 0o700)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	check("open", err)
	done.add("openat", name)
	dir := uintptr(fd)
	sub := func(base string) string { return name + "/" + base }
	f, err := unix.Openat(fd, "f", unix.O_CREAT|unix.O_RDWR, 0o600)
	check("openat", err)
	done.add("openat", sub("f"))
	_, err = unix.Write(f, []byte("x"))
	check("write", err)
	done.add("write", sub("f"))
	at("truncate", sub("f"), "ftruncate", uintptr(f), 5)
	at("chmod", sub("f"), "fchmod", uintptr(f), 0o640)
	at("chown", sub("f"), "fchown", uintptr(f), 0, 0)
	at("setxattr", sub("f"), "fsetxattr", uintptr(f), cstr("user.k"), cstr("v"), 1, 0)
	at("removexattr", sub("f"), "fremovexattr", uintptr(f), cstr("user.k"))
	m, err := unix.Mmap(f, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check("mmap", err)
	done.add("mmap_shared", sub("f"))
	check("munmap", unix.Munmap(m))
	unix.Close(f)
	check("open", func() error { _, err := unix.Openat(fd, "none", 0, 0); return ignore(err, unix.ENOENT) }())
	done.add("openat", sub("none"))
	at("chmod", sub("f"), "fchmodat", dir, cstr("f"), 0o600)
	at("chown", sub("f"), "fchownat", dir, cstr("f"), 0, 0, 0)
	at("utime", sub("f"), "utimensat", dir, cstr("f"), 0, 0)
	at("utime", name, "utimensat", dir, 0, 0, 0)
	at("truncate", sub("f"), "truncate", cstr(sub("f")), 3)
	at("setxattr", sub("f"), "setxattr", cstr(sub("f")), cstr("user.k"), cstr("v"), 1, 0)
	at("removexattr", sub("f"), "removexattr", cstr(sub("f")), cstr("user.k"))
	at("link", sub("f"), "linkat", dir, cstr("f"), dir, cstr("l"), 0)
	at("symlink", sub("s"), "symlinkat", cstr("f"), dir, cstr("s"))
	at("mknod", sub("p"), "mknodat", dir, cstr("p"), unix.S_IFIFO|0o600, 0)
	at("rename", sub("p"), "renameat2", dir, cstr("p"), dir, cstr("q"), 0)
	at("exec_failed", sub("f"), "execveat", dir, cstr("f"), 0, 0, 0)
	at("unlink", sub("q"), "unlinkat", dir, cstr("q"), 0)
	at("unlink", sub("s"), "unlinkat", dir, cstr("s"), 0)
	at("unlink", sub("l"), "unlinkat", dir, cstr("l"), 0)
	at("unlink", sub("f"), "unlinkat", dir, cstr("f"), 0)
	at("chdir", name, "fchdir", dir)
	check("chdir", unix.Chdir(".."))
	unix.Close(fd)
	at("rmdir", name, "rmdir", cstr(name))
}

// connectOnce makes a unix socket, connects to it and removes it.
func connectOnce(done truth, name string) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check("socket", err)
	check("bind", unix.Bind(socket, &unix.SockaddrUnix{Name: name}))
	done.add("bind", name)
	check("listen", unix.Listen(socket, 1))
	done.add("listen", name)
	client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check("socket", err)
	check("connect", unix.Connect(client, &unix.SockaddrUnix{Name: name}))
	done.add("connect", name)
	unix.Close(client)
	unix.Close(socket)
	raw("unlink", cstr(name))
	done.add("unlink", name)
}

func ignore(err, expected error) error {
	if err == expected {
		return nil
	}
	return err
}

// sameNames runs a child in dir and compares the names of its kinds.
func sameNames(t *testing.T, s *session, c *exec.Cmd) {
	t.Helper()
	var out strings.Builder
	c.Stdout = &out
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	s.end()
	want := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		kind, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !filepath.IsAbs(path) {
			path = c.Dir + "/" + path
		}
		want[kind+" "+path] = true
	}
	if len(want) < 100 {
		t.Fatalf("the child did %d things", len(want))
	}
	got := map[string]bool{}
	for _, e := range s.events {
		got[e.Kind.String()+" "+strings.TrimPrefix(e.Value, "unix:")] = true
	}
	missing := map[string]int{}
	for w := range want {
		if !got[w] {
			kind, _, _ := strings.Cut(w, " ")
			missing[kind]++
		}
	}
	if len(missing) > 0 {
		t.Errorf("of %d names the layer lacks, by kind: %v", len(want), missing)
	}
	for g := range got {
		if strings.Contains(g, c.Dir+"/") && !want[g] {
			t.Errorf("invented: %s", g)
		}
	}
	for _, r := range s.report.Reasons {
		t.Errorf("%+v", r)
	}
}

// roomy is a configuration that drops nothing.
var roomy = Config{RingBytes: 64 << 20}

// TestNamesOutliveTheirMemory drives every kind through names whose objects the
// kernel frees and whose memory it gives to the next.
func TestNamesOutliveTheirMemory(t *testing.T) {
	times := "400"
	if testing.Short() {
		times = "100"
	}
	for _, what := range []struct {
		child, fs string
	}{{"reuse", "tmpfs"}, {"reuse", "disk"}, {"sockets", "tmpfs"}, {"sockets", "disk"}} {
		t.Run(what.child+" on "+what.fs, func(t *testing.T) {
			s := observe(t, roomy)
			c := s.child(what.child, times)
			fs := what.fs
			if fs == "tmpfs" {
				if err := unix.Mount("none", c.Dir, "tmpfs", 0, ""); err != nil {
					t.Skipf("no tmpfs: %v", err)
				}
				t.Cleanup(func() { unix.Unmount(c.Dir, unix.MNT_DETACH) })
			}
			sameNames(t, s, c)
		})
	}
}

// A process that does nothing but sockets gets the memory of the last one's name
// for the next.
func TestNamesOfSockets(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip(err)
	}
	s := observe(t, roomy)
	c := s.command("/usr/bin/python3", "-S", "-c", `
import os, socket
for i in range(400):
    name = "s%d" % i
    a = socket.socket(socket.AF_UNIX); a.bind(name); a.listen()
    b = socket.socket(socket.AF_UNIX); b.connect(name)
    b.close(); a.close(); os.unlink(name)
    print("bind", name); print("listen", name); print("connect", name); print("unlink", name)
`)
	c.Dir = t.TempDir()
	if err := unix.Mount("none", c.Dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(c.Dir, unix.MNT_DETACH) })
	sameNames(t, s, c)
}

func TestNamesUnderMemoryPressure(t *testing.T) {
	layertest.Host(t)
	s := observe(t, roomy)
	c := s.child("pressure", "6000")
	limited(t, c, 20<<20)
	sameNames(t, s, c)
}

func TestEveryKindUnderMemoryPressure(t *testing.T) {
	s := observe(t, roomy)
	c := s.child("reuse", "1500")
	limited(t, c, 20<<20)
	sameNames(t, s, c)
}

func TestNamesOfReusedPids(t *testing.T) {
	s := observe(t, roomy)
	sameNames(t, s, s.child("proc", "200"))
}

// Processes that have one pid, one after the other, drive every kind.
func TestEveryKindOfReusedPids(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip(err)
	}
	s := observe(t, roomy)
	c := s.command("/usr/bin/python3", "-S", "-c", onePid)
	c.Dir = t.TempDir()
	sameNames(t, s, c)
}

// onePid makes processes of one pid with clone3's set_tid, which says what it did.
const onePid = `
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def did(kind, name): print(kind, name)
def life(n):
    d, i = "x%d" % n, lambda base: "x%d/%s" % (n, base)
    a = socket.socket(socket.AF_UNIX); a.bind("s" + d); did("bind", "s" + d)
    a.listen(); did("listen", "s" + d)
    b = socket.socket(socket.AF_UNIX); b.connect("s" + d); did("connect", "s" + d)
    os.unlink("s" + d); did("unlink", "s" + d)
    os.mkdir(d); did("mkdir", d)
    fd = os.open(d, os.O_RDONLY); did("openat", d)
    f = os.open("f", os.O_CREAT | os.O_RDWR, dir_fd=fd); did("openat", i("f"))
    os.write(f, b"x"); did("write", i("f"))
    os.ftruncate(f, 5); did("truncate", i("f"))
    os.fchmod(f, 0o640); did("chmod", i("f"))
    os.fchown(f, 0, 0); did("chown", i("f"))
    os.setxattr(f, "user.k", b"v"); did("setxattr", i("f"))
    os.removexattr(f, "user.k"); did("removexattr", i("f"))
    os.utime("f", dir_fd=fd); did("utime", i("f"))
    os.link("f", "l", src_dir_fd=fd, dst_dir_fd=fd); did("link", i("f"))
    os.symlink("f", "s", dir_fd=fd); did("symlink", i("s"))
    os.mkfifo("p", dir_fd=fd); did("mknod", i("p"))
    os.rename("p", "q", src_dir_fd=fd, dst_dir_fd=fd); did("rename", i("p"))
    try: os.open("none", 0, dir_fd=fd)
    except FileNotFoundError: did("openat", i("none"))
    try: os.execv(i("f"), ["f"])
    except OSError: did("exec_failed", i("f"))
    for name in "q", "s", "l", "f":
        os.unlink(name, dir_fd=fd); did("unlink", i(name))
    os.chdir(d); did("chdir", d); os.chdir("..")
    os.rmdir(d); did("rmdir", d)
    sys.stdout.flush()
    os._exit(0)
pid = os.fork()
if not pid: os._exit(0)
os.waitpid(pid, 0)
tid = ctypes.c_int(pid)
lives, tries = 0, 0
while lives < 100 and tries < 100000:
    args = (ctypes.c_uint64 * 11)(); args[4] = 17; args[8] = ctypes.addressof(tid); args[9] = 1 # SIGCHLD, set_tid and its size
    got, tries = libc.syscall(435, args, ctypes.sizeof(args)), tries + 1
    if got == 0: life(lives)
    if got == pid: os.waitpid(pid, 0); lives += 1
assert lives == 100, "the pid"
`

// What an argument's register holds beyond the argument tells nothing apart.
func TestModeOnlyWhereOneIsTaken(t *testing.T) {
	s, dir, err := observed(t, "garbage", nil)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]uint64{}
	for _, e := range s.find(schema.KindOpen, path(dir+"/f")) {
		if e.Repeat {
			times[fmt.Sprintf("%#x %#o", e.Flags, e.Mode)] += e.Count
		}
	}
	if got := s.find(schema.KindOpen, path(dir+"/g")); len(got) != 1 || got[0].Flags != 0x41 || got[0].Mode != 0o644 ||
		got[0].Resolve != unix.RESOLVE_BENEATH {
		t.Errorf("%d openat2", len(got))
	}
	if times["0x0 0"] != 4 || times["0x40 0600"] != 2 {
		t.Errorf("repeats by flags and mode: %v, want 4 and 2", times)
	}
}

// limited makes c start in a memory cgroup of so many bytes, where one can be had.
func limited(t *testing.T, c *exec.Cmd, bytes int) {
	t.Helper()
	dir, err := os.MkdirTemp("/sys/fs/cgroup/memory", "assay-test-")
	if err != nil {
		t.Skipf("no memory cgroup of version 1: %v", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	for name, value := range map[string]int{"memory.limit_in_bytes": bytes, "memory.kmem.limit_in_bytes": bytes} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strconv.Itoa(value)), 0); err != nil &&
			!strings.Contains(name, "kmem") {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Path = self
	c.Args = append([]string{"/bin/sh", "-c", "echo $$ > " + dir + "/cgroup.procs && exec \"$0\" \"$@\"", c.Path},
		c.Args[1:]...)
	c.Path = "/bin/sh"
	c.Env = append(c.Env, "GOMEMLIMIT=8MiB")
}
