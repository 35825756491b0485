// Command least makes the system calls that a run of a command cannot do without, and no
// others: it is the limit of what a run can take in Go.
//
//	least PINNED OUT CMD [ARG...]
//
// What is in: it finds its cgroups, writes a file and has it on the disk before the command
// starts, starts a guard (this program, which executes a list of steps without a Go runtime),
// makes the session's cgroups on each hierarchy, clones the command into them, waits for it,
// removes them, writes the bundle as a file that is synced and renamed, and ends the guard.
// With the observer pinned in PINNED it also opens that observer and asks whether its links
// are alive, takes the maps and rings of a seat that an earlier session left, attaches its
// programs to the session's cgroup, executes the calls of the self-test there, and at the end
// asks again, detaches, and reads the rings. Waiting for the disk is on a thread of its own.
//
// What is not: flags, checks and locks; the comparison of programs and maps with what the build
// has; the gateway's socket; what the command prints; the files of a spool beyond the first;
// decoding, documents and compression; counters; the search for what is left of other runs.
// Root, and the cgroup v1 controllers memory, pids and blkio, are taken for granted.
//
// With LEAST_TIMES it prints what the calls took: see report.
package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

func main() {
	begin := time.Now()
	debug.SetGCPercent(-1)
	runtime.LockOSThread() // it moves between cgroups
	pinned, out, argv := os.Args[1], os.Args[2], os.Args[3:]

	g := find()
	ready := async(func() {
		write(out+".run", "run.json")
		flush("fsync directory of run.json", filepath.Dir(out), unix.O_DIRECTORY)
	})
	guard := startGuard()
	g.make()
	var o *observer
	if pinned != "" {
		o = observe(pinned, &g)
	}
	<-ready
	child := g.start("start command", g.run+"/agent", true, argv, 0, 1, 2)
	reap("wait for command", child)
	ended := time.Now()
	if o != nil {
		o.end()
	}
	sealed := async(func() {
		write(out+".tmp", "bundle")
		call("rename", unix.SYS_RENAMEAT, here, text(out+".tmp"), here, text(out))
		flush("fsync directory of bundle", filepath.Dir(out), unix.O_DIRECTORY)
		call("unlink", unix.SYS_UNLINKAT, here, text(out+".run"), 0)
	})
	g.remove()
	<-sealed
	call("kill guard", unix.SYS_KILL, uintptr(guard), uintptr(unix.SIGKILL))
	report(begin, ended)
	unix.Exit(0)
}

// async does on another thread what waits for the disk.
func async(f func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	return done
}

// spawn starts this program or another.
func spawn(kind string, argv []string, attr *syscall.SysProcAttr, files []uintptr) int {
	path := argv[0]
	if path == steps.Args(0)[0] {
		path = "/proc/self/exe"
	}
	start := time.Now()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Files: files, Env: os.Environ(), Sys: attr})
	noted(kind, start)
	check(kind, err)
	return pid
}

func reap(kind string, pid int) {
	var status uint32
	call(kind, unix.SYS_WAIT4, uintptr(pid), at(&status), 0, 0)
}

// startGuard starts a process that lives as long as a pipe of this one.
func startGuard() int {
	var pipe [2]int32
	call("pipe", unix.SYS_PIPE2, at(&pipe), unix.O_CLOEXEC)
	l := steps.New()
	l.Call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	l.Call(unix.SYS_READ, 3, l.Space(8), 1)
	l.Call(unix.SYS_EXIT_GROUP, 0)
	f, err := l.File()
	check("list of steps", err)
	null := uintptr(open("/dev/null", unix.O_RDWR))
	pid := spawn("start guard", steps.Args(4, "guard"), &syscall.SysProcAttr{Setsid: true}, []uintptr{null, null, null, uintptr(pipe[0]), f.Fd()})
	call("close", unix.SYS_CLOSE, null)
	call("close", unix.SYS_CLOSE, uintptr(pipe[0]))
	call("close", unix.SYS_CLOSE, f.Fd())
	return pid
}

// write makes a small file that is on the disk afterwards.
func write(path, kind string) {
	b := make([]byte, 5000)
	fd := uintptr(open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC))
	call("write "+kind, unix.SYS_WRITE, fd, at(&b[0]), uintptr(len(b)))
	call("fsync "+kind, unix.SYS_FSYNC, fd)
	call("close", unix.SYS_CLOSE, fd)
}

func flush(kind, path string, flags int) {
	fd := uintptr(open(path, flags))
	call(kind, unix.SYS_FSYNC, fd)
	call("close", unix.SYS_CLOSE, fd)
}
