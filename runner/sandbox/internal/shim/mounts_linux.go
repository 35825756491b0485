package shim

import (
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

const (
	sizeofStat = unsafe.Sizeof(unix.Stat_t{})
	statMode   = steps.Ref(unsafe.Offsetof(unix.Stat_t{}.Mode))
	negative   = uint64(1 << 63)
	all        = ^uint64(0)
)

// mounts arranges the mount namespace, in place: every path keeps its name, and
// nothing is ever created but on file systems made here. Trees that stay
// writable are cloned before everything becomes read-only, and put back after.
func (c *compiler) mounts() {
	m := c.plan.Mounts
	if m == nil {
		return
	}
	umask := c.l.Word(0)
	c.l.Call(unix.SYS_UMASK, 0).Into(umask)
	c.do(Files, "look at the paths", func() { c.absolute(m) })
	c.do(Files, "make / private", func() { c.l.Call(unix.SYS_MOUNT, 0, "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0) })
	kept := c.clones(m)
	if !m.All {
		c.do(Files, "make / read-only", func() { c.setReadOnly(unix.AT_FDCWD, "/", unix.AT_RECURSIVE) })
	}
	if m.Devices {
		c.devices()
	}
	if m.Proc {
		c.proc()
	}
	c.place(m, kept)
	c.carve(m, kept)
	if m.Devices {
		c.finishDevices(m)
	}
	c.do(Files, "chdir", func() { // out of the directory that we were started in, to what is there now
		if c.plan.Dir != "" {
			c.l.Call(unix.SYS_CHDIR, c.plan.Dir)
		}
	})
	c.l.Call(unix.SYS_UMASK, steps.Value(umask))
}

// absolute refuses paths that would be taken from wherever we happen to be.
func (c *compiler) absolute(m *Mounts) {
	lists := [][]string{m.Writable, m.Pinned, m.ReadOnly, m.Hidden, m.Sockets, m.Private, m.Temporary}
	for _, shown := range m.Shown {
		lists = append(lists, []string{shown.Path})
	}
	for _, path := range slices.Concat(lists...) {
		if !filepath.IsAbs(path) {
			c.fail("mount "+path, unix.EINVAL)
		}
	}
}

// clone opens a detached copy of the mount at path, and of all below it.
func (c *compiler) clone(path string, fd steps.Ref) steps.Step {
	return c.call("open_tree "+path, unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, cloneTree).Into(fd)
}

const cloneTree = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE | unix.AT_SYMLINK_NOFOLLOW

// attach puts a detached mount at path, and closes it.
func (c *compiler) attach(fd steps.Ref, path string) steps.Step {
	step := c.call("move_mount "+path, unix.SYS_MOVE_MOUNT, steps.Value(fd), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	c.close(fd)
	return step
}

func (c *compiler) close(fd steps.Ref) { c.l.Call(unix.SYS_CLOSE, steps.Value(fd)) }

func (c *compiler) setReadOnly(fd any, path string, flags int) {
	attr := c.structure(mountAttr, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID)
	c.call("mount_setattr "+path, unix.SYS_MOUNT_SETATTR, fd, path, flags, attr, mountAttr)
}

const mountAttr = int(unsafe.Sizeof(unix.MountAttr{}))

// structure is a struct of size bytes whose first word is value.
func (c *compiler) structure(size int, value uint64) steps.Ref {
	at := c.l.Word(value)
	c.l.Space(size - 8)
	return at
}

// bind puts a copy of what is at from over to. Where absent is not 0, it goes on there if
// either does not exist.
func (c *compiler) bind(from, to string, readOnly bool, absent steps.Label) {
	fd := c.l.Word(0)
	opened := c.clone(from, fd)
	if absent != 0 {
		opened.On(absent, unix.ENOENT)
	}
	if readOnly {
		c.setReadOnly(steps.Value(fd), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	}
	c.attach(fd, to)
}

func (c *compiler) tmpfs(path, options string, flags int) {
	c.call("mount tmpfs "+path, unix.SYS_MOUNT, "tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options)
}

// clones opens what will be wanted once it is covered or read-only: the words
// that hold the descriptors, by path.
func (c *compiler) clones(m *Mounts) map[string]steps.Ref {
	fds := map[string]steps.Ref{}
	paths := append([]Shown{}, m.Shown...)
	for _, p := range m.Writable {
		paths = append(paths, Shown{p, true})
	}
	for _, p := range paths {
		kept, fd := c.l.Word(all), c.l.Word(0)
		c.do(Files, "keep "+p.Path, func() {
			c.clone(p.Path, fd)
			if !p.Writable {
				c.setReadOnly(steps.Value(fd), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
			}
			c.l.Set(kept, steps.Value(fd))
		})
		fds[p.Path] = kept
	}
	return fds
}

// makeDirs makes the directories on the way to path, and path itself, on the file
// systems made here that it is below.
func (c *compiler) makeDirs(path string, ours []string) {
	var made []string
	for at := path; slices.ContainsFunc(ours, func(dir string) bool { return below(at, dir) }); at = filepath.Dir(at) {
		made = append(made, at)
	}
	slices.Reverse(made)
	for _, dir := range made {
		c.call("mkdir "+dir, unix.SYS_MKDIRAT, unix.AT_FDCWD, dir, 0o755).Ignore(unix.EEXIST)
	}
}
