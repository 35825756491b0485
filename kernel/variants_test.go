//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["variants"] = func([]string) {
		for _, v := range variants {
			if v.do != nil {
				v.do()
			}
		}
	}
}

// variant is one system call and the event it must give: kind, name, paths
// relative to the working directory (a leading '=' marks an absolute one) and errno.
type variant struct {
	want string
	do   func()
}

// variants run one after the other in an empty directory.
var variants = []variant{
	{"mkdir mkdirat a -", func() { raw("mkdirat", atFDCWD, cstr("a"), 0o755) }},
	{"mkdir mkdirat a/sub -", func() { raw("mkdirat", dirfd("a"), cstr("sub"), 0o755) }},
	{"mkdir mkdirat nope/x - ENOENT", func() { raw("mkdirat", atFDCWD, cstr("nope/x"), 0o755) }},
	{"openat openat a/one -", func() {
		raw("openat", atFDCWD, cstr("a/./sub/../one"), unix.O_CREAT|unix.O_RDWR, 0o600)
	}},
	{"openat openat a/two -", func() {
		raw("openat", dirfd("a/sub"), cstr("../two"), unix.O_CREAT|unix.O_RDWR, 0o600)
	}},
	{"openat openat a/none - ENOENT", func() { raw("openat", dirfd("a"), cstr("none"), 0, 0) }},
	{"openat openat2 a/three -", func() {
		how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644, Resolve: unix.RESOLVE_BENEATH}
		raw("openat2", dirfd("a"), cstr("three"), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how))
	}},
	{"openat openat2 =/etc/passwd - EXDEV", func() {
		how := unix.OpenHow{Resolve: unix.RESOLVE_BENEATH}
		raw("openat2", dirfd("a"), cstr("/etc/passwd"), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how))
	}},
	{"link linkat a/one a/linked", func() { raw("linkat", atFDCWD, cstr("a/one"), dirfd("a"), cstr("linked"), 0) }},
	{"symlink symlinkat a/sym =one", func() { raw("symlinkat", cstr("one"), dirfd("a"), cstr("sym")) }},
	{"openat openat a/one -", func() { raw("openat", atFDCWD, cstr("a/sym"), 0, 0) }},
	{"openat openat a/sym - ELOOP", func() { raw("openat", atFDCWD, cstr("a/sym"), unix.O_NOFOLLOW, 0) }},
	{"rename renameat a/two a/sub/two", func() {
		raw("renameat", dirfd("a"), cstr("two"), dirfd("a/sub"), cstr("two"))
	}},
	{"rename renameat2 a/sub/two a/four", func() {
		raw("renameat2", atFDCWD, cstr("a/sub/two"), atFDCWD, cstr("a/four"), unix.RENAME_NOREPLACE)
	}},
	{"rename renameat2 a/four a/one EEXIST", func() {
		raw("renameat2", atFDCWD, cstr("a/four"), atFDCWD, cstr("a/one"), unix.RENAME_NOREPLACE)
	}},
	{"truncate truncate a/one -", func() { raw("truncate", cstr("a/one"), 10) }},
	{"truncate ftruncate a/one -", func() {
		fd, err := unix.Open("a/one", unix.O_RDWR, 0)
		check("a/one", err)
		raw("ftruncate", uintptr(fd), 5)
	}},
	{"truncate fallocate a/one -", func() {
		fd, err := unix.Open("a/one", unix.O_RDWR, 0)
		check("a/one", err)
		raw("fallocate", uintptr(fd), unix.FALLOC_FL_KEEP_SIZE, 4096, 8192)
	}},
	{"utime utimensat a/one -", func() { raw("utimensat", atFDCWD, cstr("a/one"), 0, 0) }},
	{"utime utimensat a/sub -", func() { raw("utimensat", dirfd("a/sub"), 0, 0, 0) }}, // as futimens does
	{"utime utimensat a/nope - ENOENT", func() { raw("utimensat", dirfd("a"), cstr("nope"), 0, 0) }},
	{"chmod fchmodat a/one -", func() { raw("fchmodat", atFDCWD, cstr("a/one"), 0o640) }},
	{"chmod fchmodat2 a/one -", func() { raw("fchmodat2", atFDCWD, cstr("a/one"), 0o644, 0) }},
	{"chmod fchmod a/three -", func() {
		fd, err := unix.Open("a/three", unix.O_RDWR, 0)
		check("a/three", err)
		raw("fchmod", uintptr(fd), 0o600)
	}},
	{"chown fchownat a/one -", func() { raw("fchownat", atFDCWD, cstr("a/one"), 0, ^uintptr(0), 0) }},
	{"chown fchown a/sub -", func() { raw("fchown", dirfd("a/sub"), 0, 0) }},
	{"setxattr setxattr a/one -", func() { raw("setxattr", cstr("a/one"), cstr("user.k"), cstr("v"), 1, 0) }},
	{"setxattr lsetxattr a/one -", func() { raw("lsetxattr", cstr("a/one"), cstr("user.l"), cstr("v"), 1, 0) }},
	{"setxattr fsetxattr a -", func() { raw("fsetxattr", dirfd("a"), cstr("user.f"), cstr("v"), 1, 0) }},
	{"removexattr removexattr a/one -", func() { raw("removexattr", cstr("a/one"), cstr("user.k")) }},
	{"removexattr lremovexattr a/one -", func() { raw("lremovexattr", cstr("a/one"), cstr("user.l")) }},
	{"removexattr fremovexattr a -", func() { raw("fremovexattr", dirfd("a"), cstr("user.f")) }},
	{"mknod mknodat a/fifo -", func() { raw("mknodat", atFDCWD, cstr("a/fifo"), unix.S_IFIFO|0o600, 0) }},
	// it takes 32 bits
	{"mknod mknodat a/null -", func() { raw("mknodat", atFDCWD, cstr("a/null"), unix.S_IFCHR|0o600, 0xff<<32|0x103) }},
	{"write write a/w -", func() { writeWith("a/w", func(fd uintptr) { raw("write", fd, cstr("hello"), 5) }) }},
	{"write pwrite64 a/w -", func() {
		writeWith("a/w", func(fd uintptr) { raw("pwrite64", fd, cstr("hello"), 5, 0) })
	}},
	{"write writev a/w -", func() {
		writeWith("a/w", func(fd uintptr) {
			iov := [2]unix.Iovec{{Base: &[]byte("hello")[0], Len: 5}, {Base: &[]byte("x")[0], Len: 1}}
			raw("writev", fd, uintptr(unsafe.Pointer(&iov)), 2)
		})
	}},
	{"write pwritev a/w -", func() {
		writeWith("a/w", func(fd uintptr) {
			iov := unix.Iovec{Base: &[]byte("hello")[0], Len: 5}
			raw("pwritev", fd, uintptr(unsafe.Pointer(&iov)), 1, 0, 0)
		})
	}},
	{"write pwritev2 a/w -", func() {
		writeWith("a/w", func(fd uintptr) {
			iov := unix.Iovec{Base: &[]byte("hello")[0], Len: 5}
			raw("pwritev2", fd, uintptr(unsafe.Pointer(&iov)), 1, 0, 0, 0)
		})
	}},
	{"write sendfile a/w -", func() { writeWith("a/w", func(fd uintptr) { raw("sendfile", fd, open("a/w"), 0, 5) }) }},
	{"write copy_file_range a/copy -", func() {
		writeWith("a/copy", func(fd uintptr) { raw("copy_file_range", open("a/w"), 0, fd, 0, 5, 0) })
	}},
	{"write io_submit a/aio -", func() {
		writeWith("a/aio", func(fd uintptr) {
			var ctx uintptr
			if _, _, e := syscall.RawSyscall(unix.SYS_IO_SETUP, 2, uintptr(unsafe.Pointer(&ctx)), 0); e != 0 {
				check("io_setup", e)
			}
			buf := uint64(cstr("hello"))
			request := func(opcode uint16, n uint64) *[64]byte { // struct iocb of linux/aio_abi.h
				b := new([64]byte)
				le.PutUint16(b[16:], opcode)
				le.PutUint32(b[20:], uint32(fd))
				le.PutUint64(b[24:], buf)
				le.PutUint64(b[32:], n)
				return b
			}
			requests := [2]*[64]byte{request(0, 1), request(1, 5)} // a read, a write
			if n := raw("io_submit", ctx, 2, uintptr(unsafe.Pointer(&requests))); n != 2 {
				check("io_submit", fmt.Errorf("took %d", int(n)))
			}
			syscall.RawSyscall(unix.SYS_IO_DESTROY, ctx, 0, 0) // waits
			runtime.KeepAlive(&requests)
		})
	}},
	{"write write a/w - EBADF", func() { raw("write", open("a/w"), cstr("hello"), 5) }},
	{"write write a/limited - EFBIG", func() {
		writeWith("a/limited", func(fd uintptr) {
			var was unix.Rlimit
			check("rlimit", unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
			check("rlimit", unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: was.Max}))
			raw("write", fd, cstr("hello"), 5)
			check("rlimit", unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
		})
	}},
	{"mmap_shared mmap a/w -", func() {
		writeWith("a/w", func(fd uintptr) {
			raw("mmap", 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0)
		})
	}},
	{"unlink unlinkat a/linked -", func() { raw("unlinkat", atFDCWD, cstr("a/linked"), 0) }},
	{"unlink unlinkat a/gone - ENOENT", func() { raw("unlinkat", atFDCWD, cstr("a/gone"), 0) }},
	{"rmdir unlinkat a/sub -", func() { raw("unlinkat", dirfd("a"), cstr("sub"), unix.AT_REMOVEDIR) }},
	{"exec_failed execve a/nope - ENOENT", func() { raw("execve", cstr("a/nope"), 0, 0) }},
	{"exec_failed execveat a/three - EACCES", func() { raw("execveat", dirfd("a"), cstr("three"), 0, 0, 0) }},
	{"memfd_create memfd_create =secret -", func() { raw("memfd_create", cstr("secret"), 0) }},
	{"namespace clone - - EINVAL", func() { raw("clone", unix.CLONE_NEWNS|unix.CLONE_FS, 0, 0, 0, 0) }},
	{"namespace clone3 - - EINVAL", func() {
		a := [8]uint64{unix.CLONE_NEWUSER | unix.CLONE_FS}
		raw("clone3", uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	}},
	{"namespace unshare - - EINVAL", func() { raw("unshare", 1) }},
	{"namespace setns - - EBADF", func() { raw("setns", ^uintptr(0), 0) }},
	{"setid setuid - -", func() { raw("setuid", 0) }},
	{"setid setgid - -", func() { raw("setgid", 0) }},
	{"setid setresuid - -", func() { raw("setresuid", 0, 0, 0) }},
	{"setid setresgid - -", func() { raw("setresgid", 0, 0, 0) }},
	{"setid setreuid - -", func() { raw("setreuid", 0, 0) }},
	{"setid setregid - -", func() { raw("setregid", 0, 0) }},
	{"setid setfsuid - -", func() { raw("setfsuid", 0) }},
	{"setid setfsgid - -", func() { raw("setfsgid", 0) }},
	{"setid setgroups - - EINVAL", func() { raw("setgroups", 1<<20, 0) }},
	{"privileged kcmp - - *", func() { raw("kcmp", uintptr(os.Getpid()), uintptr(os.Getpid()), 99) }},
	{"privileged prlimit64 - - ESRCH", func() {
		raw("prlimit64", 0x7ffffff0, 0, uintptr(unsafe.Pointer(&unix.Rlimit{})))
	}},
	{"privileged sched_setscheduler - - *", func() { raw("sched_setscheduler", 0x7ffffff0, 0, 0) }},
	{"privileged sched_setparam - - *", func() { raw("sched_setparam", 0x7ffffff0, 0) }},
	{"privileged sched_setattr - - *", func() { raw("sched_setattr", 0x7ffffff0, 0, 0) }},
	{"privileged sched_setaffinity - - *", func() { raw("sched_setaffinity", 0x7ffffff0, 0, 0) }},
	{"privileged setpriority - - ESRCH", func() { raw("setpriority", 0, 0x7ffffff0, 0) }},
	{"privileged ioprio_set - - *", func() { raw("ioprio_set", 1, 0x7ffffff0, 0) }},
	{"privileged migrate_pages - - *", func() { raw("migrate_pages", 0x7ffffff0, 0, 0, 0) }},
	{"privileged move_pages - - *", func() { raw("move_pages", 0x7ffffff0, 0, 0, 0, 0, 0) }},
	{"privileged process_mrelease - - *", func() { raw("process_mrelease", ^uintptr(0), 0) }},
	{"privileged fcntl - -", func() { raw("fcntl", open("/dev/null"), unix.F_SETOWN, uintptr(os.Getpid())) }},
	{"privileged process_madvise - - EBADF", func() { raw("process_madvise", ^uintptr(0)) }},
	{"privileged clock_adjtime - - EFAULT", func() { raw("clock_adjtime", 0, 0) }},
	{"privileged adjtimex - - EFAULT", func() { raw("adjtimex", 0) }},
	{"privileged kexec_file_load - - *", func() { raw("kexec_file_load", ^uintptr(0), ^uintptr(0), 0, 0, 0) }},
	{"capset capset - - EFAULT", func() { raw("capset", 0, 0) }},
	{"ptrace ptrace - - ESRCH", func() { raw("ptrace", 16, 0x7ffffff0) }},
	{"mount mount a - ENODEV", func() { raw("mount", cstr("none"), cstr("a"), cstr("nofs"), 0, 0) }},
	{"mount umount2 a - EINVAL", func() { raw("umount2", cstr("a"), 0) }},
	{"mount pivot_root a a *", func() { raw("pivot_root", cstr("a"), cstr("a")) }},
	{"mount fsopen - - ENODEV", func() { raw("fsopen", cstr("nofs"), 0) }},
	{"mount open_tree a/zzz - ENOENT", func() { raw("open_tree", atFDCWD, cstr("a/zzz"), 0) }},
	{"mount move_mount a/zzz a ENOENT", func() { raw("move_mount", atFDCWD, cstr("a/zzz"), atFDCWD, cstr("a"), 0) }},
	{"bpf bpf - - EINVAL", func() { raw("bpf", 9999, 0, 0) }},
	{"module init_module - - *", func() { raw("init_module", 0, 0, 0) }},
	{"module delete_module - - *", func() { raw("delete_module", cstr("no_such_module"), unix.O_NONBLOCK) }},
	{"io_uring_setup io_uring_setup - - EFAULT", func() { raw("io_uring_setup", 4, 0) }},
	{"chdir chdir a -", func() { raw("chdir", cstr("a")) }},
	{"openat openat a/here -", func() { raw("openat", atFDCWD, cstr("here"), unix.O_CREAT, 0o600) }},
	{"chdir chdir a/nowhere - ENOENT", func() { raw("chdir", cstr("nowhere")) }},
	{"chdir fchdir  -", func() { raw("fchdir", dirfd("..")) }},
	{"openat openat below -", func() { raw("openat", atFDCWD, cstr("below"), unix.O_CREAT, 0o600) }},
	{"chroot chroot a -", func() { raw("chroot", cstr("a")) }},
	{"openat openat a/inroot -", func() { raw("openat", atFDCWD, cstr("/inroot"), unix.O_CREAT, 0o600) }},
	{"unlink unlinkat a/above - ENOENT", func() { raw("unlinkat", atFDCWD, cstr("/../../above"), 0) }},
	{"openat openat a - EISDIR", func() { raw("openat", atFDCWD, cstr("/.."), unix.O_WRONLY, 0) }},
	{"chdir chdir a -", func() { raw("chdir", cstr("/")) }},
	{"unlink unlinkat a/low - ENOENT", func() { raw("unlinkat", atFDCWD, cstr("../../low"), 0) }},
	{"unlink unlinkat a/inroot -", func() { raw("unlinkat", atFDCWD, cstr("/inroot"), 0) }},
}

func TestVariants(t *testing.T) {
	s := observe(t, Config{})
	c := s.child("variants")
	s.run(c)
	s.end()
	dir, _ := filepath.EvalSymlinks(c.Dir)
	abs := func(p string) string {
		switch {
		case p == "-":
			return ""
		case strings.HasPrefix(p, "="):
			return p[1:]
		}
		return filepath.Join(dir, p)
	}
	seen := map[string]int{}
	for _, e := range s.events {
		name := ""
		if e.Errno != 0 {
			name = unix.ErrnoName(syscall.Errno(e.Errno))
		}
		path, second := paths(e)
		seen[fmt.Sprintf("%s %s %s %s %s", e.Kind, e.Syscall, path, second, name)]++
		seen[fmt.Sprintf("%s %s %s %s *", e.Kind, e.Syscall, path, second)]++ // whatever this kernel answers
		if e.Marks&schema.MarkUnreadable != 0 || e.Truncated != 0 {
			t.Errorf("flawed: %s", describe(e))
		}
	}
	want := map[string]int{}
	for _, v := range variants {
		f := append(strings.Split(v.want, " "), "")
		want[fmt.Sprintf("%s %s %s %s %s", f[0], f[1], abs(f[2]), abs(f[3]), f[4])]++
	}
	for w, n := range want {
		if seen[w] < n {
			t.Errorf("missing: %s (%d of %d)", w, seen[w], n)
		}
	}
	for _, e := range s.find(schema.KindWrite, func(e *Event) bool { return e.Syscall == "writev" || e.Errno != 0 }) {
		if e.Errno == 0 && e.BytesOut != 6 || e.Errno != 0 && e.BytesOut != 0 {
			t.Errorf("bytes of %s", describe(e))
		}
	}
	for _, e := range s.find(schema.KindMknod, path(abs("a/null"))) {
		if e.Arg(0) != 0x103 {
			t.Errorf("the device of %s is %#x", describe(e), e.Arg(0))
		}
	}
	for _, e := range s.find(schema.KindWrite, func(e *Event) bool { return e.Syscall == "io_submit" }) {
		if e.BytesOut != 5 {
			t.Errorf("bytes of %s", describe(e))
		}
	}
	for _, e := range s.find(schema.KindTruncate, func(e *Event) bool { return e.Syscall == "fallocate" }) {
		if want := []uint64{unix.FALLOC_FL_KEEP_SIZE, 4096, 8192}; !slices.Equal(e.Args, want) {
			t.Errorf("arguments of fallocate are %v, want %v", e.Args, want)
		}
	}
	for _, e := range s.find(schema.KindNamespace, func(e *Event) bool {
		return strings.HasPrefix(e.Syscall, "clone")
	}) {
		if e.Flags&(unix.CLONE_NEWNS|unix.CLONE_NEWUSER) == 0 {
			t.Errorf("flags of %s are %#x", e.Syscall, e.Flags)
		}
	}
	if t.Failed() {
		t.Log(s.dump())
	}
	if _, err := os.Stat(filepath.Join(dir, "below")); err != nil {
		t.Error(err)
	}
}

// paths are the files that an event names.
func paths(e *Event) (first, second string) {
	switch e.Kind {
	case schema.KindSignal, schema.KindJoin, schema.KindLeave:
		return "", ""
	case schema.KindRename, schema.KindLink, schema.KindSymlink:
		return e.Value, e.Target
	case schema.KindMount:
		if e.Syscall == "move_mount" || e.Syscall == "pivot_root" {
			return e.Value, e.Target
		}
	}
	if e.Protocol != "" {
		name, _ := strings.CutPrefix(e.Value, "unix:")
		if name == e.Value {
			name = ""
		}
		return name, ""
	}
	return e.Value, ""
}

// Of what mknod makes, devices alone have a number.
func TestDevicesHaveTheirNumber(t *testing.T) {
	native, _ := sysTables()
	i := slices.IndexFunc(native[:], func(c *sysCall) bool { return c != nil && c.name == "mknodat" })
	for mode, want := range map[uint64]int{0o20600: 1, 0o60600: 1, 0o10600: 0} {
		e := Event{KernelEvent: schema.KernelEvent{Kind: schema.KindMknod}}
		if e.arguments(native[i], [6]uint64{2: mode, 3: 0x103}, false); len(e.Args) != want || e.Mode != uint32(mode) {
			t.Errorf("mode %o: arguments %v, mode %o", mode, e.Args, e.Mode)
		}
	}
}
