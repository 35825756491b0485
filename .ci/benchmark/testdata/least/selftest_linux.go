package main

import (
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// selfTest executes the system calls of the observer's self-test in a cgroup of its own.
func selfTest(g *groups) {
	dir := g.run + "/selftest"
	call("mkdir cgroup", unix.SYS_MKDIRAT, here, text(dir), 0o755)
	threads := open(dir+"/cgroup.threads", unix.O_WRONLY)
	f, err := exercise().File()
	check("list of steps", err)
	pid := g.start("start self-test", dir, false, steps.Args(4, "self-test"), 0, 1, 2, uintptr(threads), f.Fd())
	reap("wait for self-test", pid)
	call("close", unix.SYS_CLOSE, uintptr(threads))
	call("close", unix.SYS_CLOSE, f.Fd())
	call("rmdir cgroup", unix.SYS_UNLINKAT, here, text(dir), unix.AT_REMOVEDIR)
}

// exercise has the calls of kernel/internal/exercise.
func exercise() *steps.List {
	l := steps.New()
	try := func(nr int, args ...any) steps.Step { return l.Call(nr, args...).Ignore(steps.AnyErrno) }
	const at = unix.AT_FDCWD
	fd, port, space := l.Word(0), l.Word(0), l.Space(32)
	own, none := steps.Value(fd), l.Strings(nil)
	try(unix.SYS_WRITE, 3, "0", 1)
	try(unix.SYS_OPENAT, at, "/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0).Into(fd)
	try(unix.SYS_CLOSE, own)
	try(unix.SYS_EXECVE, "", none, none)
	try(unix.SYS_RENAMEAT, at, "", at, "")
	try(unix.SYS_UNLINKAT, at, "", 0)
	try(unix.SYS_LINKAT, at, "", at, "", 0)
	try(unix.SYS_MKDIRAT, at, "", 0)
	try(unix.SYS_TRUNCATE, "", 0)
	try(unix.SYS_FCHMODAT, at, "", 0)
	try(unix.SYS_CHDIR, ".")
	try(unix.SYS_UNSHARE, 0)
	try(unix.SYS_MEMFD_CREATE, "", unix.MFD_CLOEXEC).Into(fd)
	try(unix.SYS_WRITE, own, space, 1)
	try(unix.SYS_MMAP, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, own, 0).Into(port)
	try(unix.SYS_MUNMAP, steps.Value(port), 1)
	try(unix.SYS_CLOSE, own)
	v4 := []byte{unix.AF_INET, 0, 0, 0, 127, 0, 0, 1, 15: 0}
	v6 := []byte{unix.AF_INET6, 23: 1, 27: 0}
	for _, to := range [][]byte{v4, v6} {
		a, size := l.Bytes(to), len(to)
		try(unix.SYS_SOCKET, int(to[0]), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).Into(fd)
		try(unix.SYS_BIND, own, a, size)
		try(unix.SYS_GETSOCKNAME, own, a, l.Word(uint64(size)))
		try(unix.SYS_SENDTO, own, space, 1, 0, a, size)
		try(unix.SYS_CONNECT, own, a, size)
		try(unix.SYS_CLOSE, own)
	}
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	a := l.Bytes(v4)
	try(unix.SYS_SOCKET, unix.AF_INET, kind, 0).Into(port)
	try(unix.SYS_SOCKET, unix.AF_INET, kind, 0).Into(fd)
	try(unix.SYS_BIND, steps.Value(port), a, len(v4))
	try(unix.SYS_GETSOCKNAME, steps.Value(port), a, l.Word(16))
	try(unix.SYS_CONNECT, own, a, len(v4))
	l.Call(unix.SYS_EXIT_GROUP, 0)
	return l
}
