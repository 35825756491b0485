package shim

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// maskDir holds, on the tmpfs that is /dev, what covers hidden files while the
// mounts are made. It is gone when the command starts.
const maskDir = "/dev/.assay-run"

// devices are those that every program may use; /dev/pts is a new instance, in
// which no terminal of anybody else exists.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// procReadOnly are the parts of /proc that are the machine's, not a process's.
var procReadOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "tty", "driver"}

// devices replaces /dev. The mask is made there too, since /dev is always ours.
func (c *compiler) devices() {
	c.do(Files, "mount /dev", func() {
		fds := make([]steps.Ref, len(devices))
		for i, name := range devices {
			fds[i] = c.l.Word(all)
			c.clone("/dev/"+name, fds[i]).Ignore(unix.ENOENT)
		}
		console := c.l.Word(all)
		c.cloneTerminal(console)
		c.tmpfs("/dev", "mode=0755,size=64k", unix.MS_NOEXEC)
		for i, name := range append(append([]string{}, devices...), "console") {
			none := c.l.Label()
			fd := append(fds, console)[i]
			c.l.If(steps.Value(fd), negative, negative, none)
			c.touch("/dev/"+name, 0o644)
			c.attach(fd, "/dev/"+name)
			c.l.At(none)
		}
		for _, link := range [][2]string{
			{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
			{"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
		} {
			c.call("symlink /dev/"+link[1], unix.SYS_SYMLINKAT, link[0], unix.AT_FDCWD, "/dev/"+link[1])
		}
		for _, dir := range []string{"/dev/pts", "/dev/shm", maskDir} {
			c.call("mkdir "+dir, unix.SYS_MKDIRAT, unix.AT_FDCWD, dir, 0o755)
		}
		c.call("mount devpts", unix.SYS_MOUNT, "devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
		c.tmpfs("/dev/shm", "mode=1777", 0)
		c.call("mkdir "+maskDir, unix.SYS_MKDIRAT, unix.AT_FDCWD, maskDir+"/dir", 0)
		c.touch(maskDir+"/file", 0)
	})
}

// terminalPath bounds the path of a terminal, in bytes.
const terminalPath = 128

// cloneTerminal opens a detached copy of the terminal that a stream is, if any:
// ttyname(3) looks in /dev for it, as /dev/pts is a new one.
func (c *compiler) cloneTerminal(terminal steps.Ref) {
	done := c.l.Label()
	attributes := c.l.Space(64) // struct termios
	for fd := range 3 {
		other := c.l.Label()
		path := c.l.Space(terminalPath)
		c.l.Call(unix.SYS_IOCTL, fd, unix.TCGETS, attributes).On(other, steps.AnyErrno)
		c.l.Call(unix.SYS_READLINKAT, unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), path, terminalPath-1).On(other, steps.AnyErrno)
		dev, is := binary.LittleEndian.Uint64([]byte("/dev/\x00\x00\x00")), c.l.Label()
		c.l.If(steps.Value(path), 1<<40-1, dev, is)
		c.l.Goto(other)
		c.l.At(is)
		c.call("open_tree of a terminal", unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, cloneTree).Into(terminal).On(other, unix.ENOENT)
		c.l.Goto(done)
		c.l.At(other)
	}
	c.l.At(done)
}

// finishDevices takes away what only making the mounts needed: the masks, and the
// right to write to /dev, and to /dev/shm where the profile gives none. What is
// shown below that has been put there by now.
func (c *compiler) finishDevices(m *Mounts) {
	c.do(Files, "make /dev read-only", func() {
		c.call("remove "+maskDir, unix.SYS_UNLINKAT, unix.AT_FDCWD, maskDir+"/file", 0)
		c.call("remove "+maskDir, unix.SYS_UNLINKAT, unix.AT_FDCWD, maskDir+"/dir", unix.AT_REMOVEDIR)
		c.call("remove "+maskDir, unix.SYS_UNLINKAT, unix.AT_FDCWD, maskDir, unix.AT_REMOVEDIR)
		c.setReadOnly(unix.AT_FDCWD, "/dev", 0)
		if !m.Shm {
			c.setReadOnly(unix.AT_FDCWD, "/dev/shm", 0)
		}
	})
}

func (c *compiler) proc() {
	c.do(Files, "mount /proc", func() {
		c.call("mount proc /proc", unix.SYS_MOUNT, "proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0)
	})
	c.do(Files, "make /proc/sys read-only", func() {
		for _, name := range procReadOnly {
			absent := c.l.Label()
			c.bind("/proc/"+name, "/proc/"+name, true, absent)
			c.l.At(absent)
		}
	})
}
