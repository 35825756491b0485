package helper

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// leaderMain is the leader's process: it starts the command, reports every
// change of its state, and ends when the runner says so or is gone.
func leaderMain(args []string) int {
	if len(args) < 8 {
		return 125
	}
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(args[2+i])
	}
	first := n[0]
	if first < 3 {
		return 125
	}
	fd := first + 1
	take := func(n int) []int {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = fd
			unix.CloseOnExec(fd)
			fd++
		}
		return fds
	}
	unix.CloseOnExec(first)
	attr := &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	for _, dir := range take(n[1]) {
		attr.UseCgroupFD, attr.CgroupFD = true, dir
	}
	pid, err := forkIn(take(n[2]), take(n[3]), args[6], args[7:], attr)
	report := func(kind, value uint32) {
		var b [8]byte
		binary.NativeEndian.PutUint32(b[:4], kind)
		binary.NativeEndian.PutUint32(b[4:], value)
		_, _ = unix.Write(first, b[:])
	}
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		report(reportFailed, uint32(errno))
		return 125
	}
	// Only now: what is ignored stays so in a child.
	ignoreSignals()
	conceal()
	letGo(first)
	report(reportStarted, uint32(pid))
	go func() {
		for {
			var st unix.WaitStatus
			_, err := unix.Wait4(pid, &st, unix.WUNTRACED|unix.WCONTINUED, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			report(reportStatus, uint32(st))
		}
	}()
	var b [1]byte
	for {
		if _, err := unix.Read(first, b[:]); err != unix.EINTR {
			return 0
		}
	}
}

// forkIn starts the command from a thread that is in the v1 directories of join
// meanwhile. See launcher.run for why it writes "0".
func forkIn(join, home []int, path string, argv []string, attr *syscall.SysProcAttr) (pid int, err error) {
	runtime.LockOSThread()
	for _, fd := range join {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return 0, err
		}
	}
	pid, err = syscall.ForkExec(path, argv,
		&syscall.ProcAttr{Env: exactEnviron(), Files: []uintptr{0, 1, 2}, Sys: attr})
	for _, fd := range home {
		if _, herr := unix.Write(fd, []byte("0")); herr != nil && err == nil {
			// The group could never become empty with this thread in it.
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
			err = herr
		}
	}
	return pid, err
}

// letGo closes the leader's copies of the command's descriptors, so that readers of its pipes see their end.
func letGo(first int) {
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(null, fd, 0)
		}
		unix.Close(null)
	}
	for fd := 3; fd < first; fd++ {
		// The Go runtime's own are closed on exec, what we were given is not.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}
