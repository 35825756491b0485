package shim

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// exitShim is the exit status of a shim that could not do its work.
const exitShim = 125

// forNamespaces are what a process keeps, in a user namespace, to make the layers.
var forNamespaces = []int{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN}

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
	for _, capability := range forNamespaces {
		attr.AmbientCaps = append(attr.AmbientCaps, uintptr(capability))
	}
}

// again goes on in a child in the plan's namespaces, and ends as that does.
func (c *compiler) again() {
	l := c.l
	pid, status, inside := l.Word(0), l.Word(0), l.Label()
	c.operation(Namespaces, "clone", true, func() {
		l.Call(unix.SYS_CLONE, c.plan.Clone|uintptr(unix.SIGCHLD), 0, 0, 0, 0).Into(pid)
		l.If(steps.Value(pid), all, 0, inside)
		l.OnError(0)
		l.Call(unix.SYS_CLOSE, c.control)
		if !c.plan.OwnTerminal {
			c.letGo()
		}
		// It stops with the command when the terminal says so, and ends after it.
		ignore := c.structure(32, 1) // struct sigaction with SIG_IGN
		for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE,
			unix.SIGUSR1, unix.SIGUSR2} {
			l.Call(unix.SYS_RT_SIGACTION, sig, ignore, 0, 8)
		}
		l.Call(unix.SYS_WAIT4, steps.Value(pid), status, 0, 0)
		l.If(steps.Value(status), 0x7f, 0, c.exit(status))
		l.Call(unix.SYS_EXIT_GROUP, exitShim)

		l.At(inside)
		l.OnError(c.giveUp)
		if c.plan.Clone&unix.CLONE_NEWUSER != 0 {
			uid, gid := os.Geteuid(), os.Getegid()
			for _, f := range [][2]string{{"uid_map", fmt.Sprintf("%d %d 1", uid, uid)}, {"setgroups", "deny"},
				{"gid_map", fmt.Sprintf("%d %d 1", gid, gid)}} {
				fd := l.Word(0)
				c.call("open "+f[0], unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/self/"+f[0], unix.O_WRONLY|unix.O_CLOEXEC,
					0).Into(fd)
				c.call("write "+f[0], unix.SYS_WRITE, steps.Value(fd), f[1], len(f[1]))
				c.close(fd)
			}
			c.capset(forNamespaces...)
		}
	})
}

// exit is a label that leads to an exit with the status of a wait status. It is compiled where
// the list ends anyway.
func (c *compiler) exit(status steps.Ref) steps.Label {
	return c.tail(func() {
		code := c.l.Word(0)
		c.l.Make(code, steps.Value(status), 8, 0xff, 0)
		c.l.Call(unix.SYS_EXIT_GROUP, steps.Value(code))
	})
}

// tail keeps something to be compiled at the end of the list.
func (c *compiler) tail(compile func()) steps.Label {
	label := c.l.Label()
	c.tails = append(c.tails, func() {
		c.l.At(label)
		compile()
	})
	return label
}

// letGo closes what the shim holds of the command's: a stream of which it had
// the last copy would never end.
func (c *compiler) letGo() {
	null, none := c.l.Word(0), c.l.Label()
	c.l.Call(unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0).Into(null).On(
		none, steps.AnyErrno,
	)
	for fd := range 3 {
		c.l.Call(unix.SYS_DUP3, steps.Value(null), fd, 0).Ignore(steps.AnyErrno)
	}
	c.close(null)
	c.l.At(none)
	for i := range c.plan.Keep {
		c.l.Call(unix.SYS_CLOSE, 3+i).Ignore(steps.AnyErrno)
	}
}

// fork goes on in a child, which becomes the command. The process itself stays as init, with what it has:
// /proc shows it to the command, which may neither see nor signal it.
//
// Only SIGKILL and SIGSTOP, and those from outside, reach a process 1 that does not handle a
// signal. The runner signals the command itself.
func (c *compiler) fork() {
	l := c.l
	child, pid, m := l.Label(), l.Word(0), c.message(KindStarted)
	l.OnError(0)
	l.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, l.Word(signals(unix.SIGCHLD, unix.SIGTTOU)), c.mask, 8)
	l.Call(unix.SYS_CLONE, unix.CLONE_VFORK|unix.CLONE_PIDFD|int(unix.SIGCHLD), 0, m.fd, 0, 0).Into(pid)
	l.If(steps.Value(pid), all, 0, child)
	if !c.plan.Probe {
		c.sendFile(m).Ignore(steps.AnyErrno)
	}
	c.close(m.fd)
	l.Call(unix.SYS_CLOSE, steps.Value(c.ruleset)).Ignore(steps.AnyErrno)
	c.letGo()
	c.serve(pid)
	l.At(child)
	l.OnError(c.giveUp)
}

// signals is a set of them.
func signals(list ...unix.Signal) (set uint64) {
	for _, sig := range list {
		set |= 1 << (sig - 1)
	}
	return set
}

// serve reaps, tells the runner of every change of the command's state, and dials for it. It ends with
// the last process of the namespace, whose end would be the end of everything in it, or when the runner is gone.
func (c *compiler) serve(pid steps.Ref) {
	l := c.l
	loop, reap, told, unasked := l.Label(), l.Label(), l.Label(), l.Label()
	empty, gone := c.tail(func() { l.Call(unix.SYS_EXIT_GROUP, 0) }), c.tail(
		func() { l.Call(unix.SYS_EXIT_GROUP, exitShim) },
	)
	children, got := l.Word(0), l.Word(0)
	state := c.message(KindState)
	status := state.text + 8
	// Two struct pollfd: the children's signal, and the runner.
	poll := c.words32(0, unix.POLLIN, uint32(c.control), unix.POLLIN)
	info := l.Space(128) // struct signalfd_siginfo
	l.Call(unix.SYS_SIGNALFD4, -1, l.Word(signals(unix.SIGCHLD)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK).Into(children)
	l.Make(poll, steps.Value(children), 0, 0xffffffff, uint64(unix.POLLIN)<<32)
	l.At(reap)
	l.Call(unix.SYS_WAIT4, -1, status, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED, 0).Into(got).On(empty, unix.ECHILD)
	l.If(steps.Value(got), all, 0, loop)
	l.If(steps.Value(got), all, steps.Value(pid), told)
	l.Goto(reap)

	l.At(told)
	c.send(state).Ignore(steps.AnyErrno)
	if c.plan.EndWithCommand {
		l.If(steps.Value(status), 0x7f, 0, c.exit(status))
		l.If(steps.Value(status), 0x7f, 0x7f, reap) // stopped or continued
		code := l.Word(0)
		l.Make(code, steps.Value(status), 0, 0x7f, 128) // process 1 cannot end by a signal
		l.Call(unix.SYS_EXIT_GROUP, steps.Value(code))
	}
	l.Goto(reap)

	l.At(loop)
	l.Call(unix.SYS_PPOLL, poll, 2, 0, 0, 0)
	l.If(steps.Value(poll+8), 0xffff<<48, 0, unasked) // nothing of the runner
	c.dial(gone)
	l.At(unasked)
	l.Call(unix.SYS_READ, steps.Value(children), info, 128).Ignore(unix.EAGAIN)
	l.Goto(reap)
}

// dial makes the connection that the runner asks for, and sends it before it is made: a connect on the
// loopback device waits for a program that does not accept, and nobody else may.
func (c *compiler) dial(gone steps.Label) {
	l := c.l
	refused, refusedOpen, done := l.Label(), l.Label(), l.Label()
	question, size := l.Space(dialSize), l.Word(0)
	m := c.message(KindDialed)
	l.Call(unix.SYS_RECVFROM, c.control, question, dialSize, unix.MSG_DONTWAIT, 0, 0).Into(size).On(done,
		unix.EAGAIN).On(
		gone, steps.AnyErrno,
	)
	l.If(steps.Value(size), all, 0, gone)
	l.Set(m.text+8, steps.Value(question))
	l.Set(m.text+16, 0)
	l.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0).Into(m.fd).On(
		refused, steps.AnyErrno,
	)
	l.Call(unix.SYS_CONNECT, steps.Value(m.fd), question+8, sizeofSockaddr).Ignore(unix.EINPROGRESS).On(
		refusedOpen, steps.AnyErrno,
	)
	c.sendFile(m).Ignore(steps.AnyErrno)
	c.close(m.fd)
	l.Goto(done)
	l.At(refusedOpen)
	c.close(m.fd)
	l.At(refused)
	l.Set(m.text+16, int(unix.ECONNREFUSED))
	c.send(m).Ignore(steps.AnyErrno)
	l.At(done)
}

// command tells how the layers went, and becomes the command.
func (c *compiler) command() {
	l := c.l
	failed := l.Label()
	c.tell(KindLayers)
	if c.plan.Waits {
		c.wait()
	}
	if c.plan.Probe {
		l.Call(unix.SYS_EXIT_GROUP, 0)
	} else {
		l.OnError(failed)
		if c.plan.Init {
			if c.plan.OwnTerminal { // a terminal's jobs need a group that has a number in this namespace
				group := l.Word(0)
				l.Call(unix.SYS_SETPGID, 0, 0)
				l.Call(unix.SYS_GETPID).Into(group)
				l.Call(unix.SYS_IOCTL, 0, unix.TIOCSPGRP, group)
			}
			if c.plan.Dir != "" {
				l.Call(unix.SYS_CHDIR, c.plan.Dir)
			}
			l.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, c.mask, 0, 8)
		}
		l.Call(unix.SYS_EXECVE, c.plan.Path, l.Strings(c.plan.Args), l.Environ())
	}
	l.At(failed)
	c.tell(KindFailed)
	l.Call(unix.SYS_EXIT_GROUP, exitShim)
	l.At(c.giveUp)
	c.tell(KindLayers)
	l.Call(unix.SYS_EXIT_GROUP, exitShim)
	for i := 0; i < len(c.tails); i++ {
		c.tails[i]()
	}
}

// tell sends which steps failed. Where that is impossible, all ends.
func (c *compiler) tell(kind uint64) {
	size := c.l.Word(0)
	c.l.OnError(0)
	c.l.Set(c.l.Failures(), kind)
	c.l.Make(size, steps.Value(c.l.Failures()+8), 0, all, 16)
	c.l.Call(unix.SYS_SENDTO, c.control, c.l.Failures(), steps.Value(size), unix.MSG_NOSIGNAL, 0, 0)
}

// wait waits for the runner's word. It ends the shim where the runner is gone.
func (c *compiler) wait() {
	l := c.l
	gone, said, size, word := c.tail(func() { l.Call(unix.SYS_EXIT_GROUP, exitShim) }), l.Label(), l.Word(0), l.Word(0)
	l.Call(unix.SYS_RECVFROM, c.control, word, 8, 0, 0, 0).Into(size).On(gone, steps.AnyErrno)
	l.If(steps.Value(size), all, uint64(len(goAhead)), said)
	l.Goto(gone)
	l.At(said)
}

// goAhead is the runner's word.
var goAhead = []byte{1}

const dialSize = 8 + sizeofSockaddr

// question is what a shim takes: the id of a dial, and where to.
func question(id uint64, port int) []byte {
	return append(binary.NativeEndian.AppendUint64(nil, id), loopback(port)...)
}
