package shim

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// again starts a second shim in the plan's namespaces, and ends as it does.
func (s *shim) again(control, planFD int) int {
	plan := s.plan
	clone := plan.Clone
	attr := &syscall.SysProcAttr{Cloneflags: clone}
	MapUser(attr)
	files := []uintptr{0, 1, 2}
	for i := range plan.Keep {
		files = append(files, uintptr(3+i))
	}
	plan.Clone = 0
	f, err := Write(plan)
	if err != nil {
		return exitShim
	}
	files = append(files, uintptr(control), f.Fd())
	args := []string{Name, Arg, strconv.Itoa(len(files) - 2), strconv.Itoa(len(files) - 1)}
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{Env: exactEnviron(), Files: files, Sys: attr})
	if err != nil {
		s.enter(Namespaces)
		r := s.reports[Namespaces]
		r.State, r.Reason = Unavailable, "clone: "+err.Error()
		var errno unix.Errno
		if errors.As(err, &errno) {
			r.Errno = int(errno)
		}
		s.stopped = Namespaces
		_ = s.tell()
		return exitShim
	}
	s.conn.Close()
	if !plan.OwnTerminal {
		letGo(plan.Keep)
	}
	// It stops with the command when the terminal says so, and ends after it.
	dispose(sigIgnore, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	var st unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &st, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || st.Signaled() {
			return exitShim
		}
		return st.ExitStatus()
	}
}

// MapUser maps the user and group that run this into a user namespace that attr
// asks for, and no other.
func MapUser(attr *syscall.SysProcAttr) {
	if attr.Cloneflags&unix.CLONE_NEWUSER == 0 {
		return
	}
	uid, gid := os.Geteuid(), os.Getegid()
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	// The shim is executed as somebody who is not root there.
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN}
}

// start starts the command as a child, and sends the runner its pidfd.
func (s *shim) start() (pid int, err error) {
	// Only SIGKILL and SIGSTOP, and those from outside, reach a process 1 that does not
	// handle a signal, but the Go runtime handles most. The runner signals the command
	// itself.
	dispose(sigDefault, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGABRT, unix.SIGALRM)
	pidfd := -1
	files := []uintptr{0, 1, 2}
	for i := range s.plan.Keep {
		files = append(files, uintptr(3+i))
	}
	// A terminal's jobs need a group that has a number in this namespace.
	pid, err = syscall.ForkExec(s.plan.Path, s.plan.Args, &syscall.ProcAttr{
		Dir: s.plan.Dir, Env: exactEnviron(), Files: files, Sys: &syscall.SysProcAttr{PidFD: &pidfd, Foreground: s.plan.OwnTerminal},
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd)
	return pid, s.conn.Send(Message{Kind: KindStarted}, pidfd)
}

// wait stays until nothing is left in the namespace. Its end would be the end of
// everything in it.
func (s *shim) wait(pid int) int {
	letGo(s.plan.Keep)
	go s.serve()
	for {
		var st unix.WaitStatus
		got, err := unix.Wait4(-1, &st, unix.WUNTRACED|unix.WCONTINUED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0
		case got == pid:
			_ = s.conn.Send(Message{Kind: KindState, Status: uint32(st)}, -1)
			switch {
			case !s.plan.EndWithCommand:
			case st.Exited():
				return st.ExitStatus()
			case st.Signaled():
				return 128 + int(st.Signal()) // process 1 cannot end by a signal
			}
		}
	}
}

// letGo closes what the shim holds of the command's: a stream of which it had
// the last copy would never end.
func letGo(keep int) {
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(null, fd, 0)
		}
		unix.Close(null)
	}
	for i := range keep {
		unix.Close(3 + i)
	}
}

// serve answers the runner, and ends everything when it is gone.
func (s *shim) serve() {
	for {
		m, fd, err := s.conn.Receive()
		if fd >= 0 {
			unix.Close(fd)
		}
		if err != nil {
			os.Exit(exitShim)
		}
		if m.Kind == KindDial {
			go s.dial(m)
		}
	}
}

// dialTimeout bounds a connection inside: the loopback device is never slow.
var dialTimeout = unix.Timeval{Sec: 5}

func (s *shim) dial(m Message) {
	answer := Message{Kind: KindDialed, ID: m.ID}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = errors.Join(
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &dialTimeout),
			unix.Connect(fd, &unix.SockaddrInet4{Port: m.Port, Addr: [4]byte{127, 0, 0, 1}}),
		)
	}
	if err != nil {
		answer.Errno = int(unix.ECONNREFUSED)
		_ = s.conn.Send(answer, -1)
		return
	}
	_ = s.conn.Send(answer, fd)
}
