package shim

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// process keeps the shim itself out of the command's reach, and everything that
// it was not given out of the command's hands.
func (c *compiler) process() {
	c.do(Privileges, "prctl PR_SET_DUMPABLE", func() {
		if c.plan.Init { // otherwise exec makes it dumpable again, and the command's own
			c.l.Call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		}
	})
	c.do(Privileges, "close_range", func() {
		c.l.Call(unix.SYS_CLOSE_RANGE, 3+c.plan.Keep, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	})
}

// privileges gives up all that the command is not to have.
func (c *compiler) privileges() {
	if c.plan.KeepPrivileges {
		return
	}
	c.do(Privileges, "drop the capability bounding set", c.dropBounding)
	c.user()
	c.look()
	c.do(Privileges, "capset", func() {
		c.l.Call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0).Ignore(unix.EINVAL)
		c.capset()
	})
	c.do(Privileges, "prctl PR_SET_NO_NEW_PRIVS", c.noNewPrivs)
}

func (c *compiler) noNewPrivs() {
	c.l.Call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// capset leaves the process these capabilities, of the first 32, and no others.
func (c *compiler) capset(capabilities ...int) {
	var bits uint32
	for _, n := range capabilities {
		bits |= 1 << n
	}
	c.l.Call(unix.SYS_CAPSET, c.words32(unix.LINUX_CAPABILITY_VERSION_3, 0), c.words32(bits, bits, 0, 0, 0, 0))
}

// dropBounding empties the bounding set, so that not even root's exec regains a
// capability. A process without CAP_SETPCAP has none to regain: see
// no_new_privs.
func (c *compiler) dropBounding() {
	may, one, done, refused := c.l.Label(), c.l.Label(), c.l.Label(), c.l.Label()
	has := c.words32(0, 0, 0, 0, 0, 0) // effective, permitted, inheritable; and of the others
	c.call("capget", unix.SYS_CAPGET, c.words32(unix.LINUX_CAPABILITY_VERSION_3, 0), has)
	c.l.If(steps.Value(has), 1<<unix.CAP_SETPCAP, 1<<unix.CAP_SETPCAP, may)
	second := c.l.Label()
	c.l.If(steps.Value(has), 0xffffffff<<32, 0, second)
	c.l.At(refused)
	c.fail("capabilities without CAP_SETPCAP", unix.EPERM)
	c.l.At(second)
	c.l.If(steps.Value(has+16), 0xffffffff, 0, done)
	c.l.Goto(refused)
	c.l.At(may)
	n := c.l.Word(1)
	c.l.Call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, 0, 0, 0, 0)
	c.l.At(one)
	c.l.Call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, steps.Value(n), 0, 0, 0).On(done, unix.EINVAL) // the kernel has no more
	c.l.Make(n, steps.Value(n), 0, all, 1)
	c.l.Goto(one)
	c.l.At(done)
}

// user becomes the plan's user. It is no part of a layer that may be missing: a
// command that was to be somebody else's never runs as us.
func (c *compiler) user() {
	if c.plan.UID == nil {
		return
	}
	c.handOver()
	c.operation(Privileges, "change the user", true, func() {
		var groups []byte
		for _, g := range c.plan.Groups {
			groups = binary.NativeEndian.AppendUint32(groups, uint32(g))
		}
		gid, uid := *c.plan.GID, *c.plan.UID
		c.call("setgroups", unix.SYS_SETGROUPS, len(c.plan.Groups), c.l.Bytes(append(groups, 0, 0, 0, 0)))
		c.call("setresgid", unix.SYS_SETRESGID, gid, gid, gid)
		c.call("setresuid", unix.SYS_SETRESUID, uid, uid, uid)
	})
}

// handOver gives the plan's user the pipes, and a terminal of the command's own,
// that its streams are: opening /dev/stderr opens them anew. Where that fails
// the streams work all the same.
func (c *compiler) handOver() {
	attributes := c.l.Space(64) // struct termios
	for fd := range 3 {
		give, next := c.l.Label(), c.l.Label()
		c.l.Call(unix.SYS_FSTAT, fd, c.stat).On(next, steps.AnyErrno)
		c.l.If(steps.Value(c.stat+statMode), unix.S_IFMT, unix.S_IFIFO, give)
		if !c.plan.OwnTerminal {
			c.l.Goto(next)
		}
		c.l.Call(unix.SYS_IOCTL, fd, unix.TCGETS, attributes).On(next, steps.AnyErrno)
		c.l.At(give)
		c.l.Call(unix.SYS_FCHOWN, fd, *c.plan.UID, -1).Ignore(steps.AnyErrno)
		c.l.At(next)
	}
}

// look finds out, as the command's user, what of the plan's needs it cannot use.
// access(2) asks for the real user, who is the command's by now.
func (c *compiler) look() {
	for _, n := range c.plan.Needs {
		next := c.l.Label()
		c.l.OnError(next)
		c.needs[c.l.Len()] = n
		c.l.Call(unix.SYS_FACCESSAT, unix.AT_FDCWD, n.Path, int(n.Mode))
		c.l.At(next)
	}
	c.l.OnError(c.giveUp)
}

// filter loads the seccomp program.
func (c *compiler) filter() {
	if len(c.plan.Filter) == 0 {
		return
	}
	c.do(Seccomp, "seccomp SECCOMP_SET_MODE_FILTER", func() {
		var b []byte
		for _, in := range c.plan.Filter {
			b = append(binary.NativeEndian.AppendUint16(b, in.Code), in.Jt, in.Jf)
			b = binary.NativeEndian.AppendUint32(b, in.K)
		}
		program := c.structure(16, uint64(len(c.plan.Filter))) // struct sock_fprog
		c.l.Pointer(program+8, c.l.Bytes(b))
		again, done := c.l.Label(), c.l.Label()
		c.l.Call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, program).On(again, unix.EACCES)
		c.l.Goto(done)
		c.l.At(again) // neither CAP_SYS_ADMIN nor no_new_privs
		c.noNewPrivs()
		c.l.Call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, program)
		c.l.At(done)
	})
}
