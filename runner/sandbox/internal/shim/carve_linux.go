package shim

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// place makes private and temporary directories, and puts back what stays
// writable, outer trees before inner ones.
func (c *compiler) place(m *Mounts, kept map[string]steps.Ref) {
	for _, dir := range m.Private {
		c.do(Files, "cover "+dir, func() { c.tmpfs(dir, "mode=0755,size=1m", 0) })
	}
	for _, dir := range m.Temporary {
		c.do(Files, "mount "+dir, func() {
			c.makeDirs(dir, m.Temporary)
			c.tmpfs(dir, "mode=1777", 0)
		})
	}
	for _, p := range m.Writable {
		c.do(Files, "make writable "+p, func() { c.put(kept[p], p, m) })
	}
}

// carve makes the exceptions: what cannot be renamed, is read-only, hidden, and
// shown again.
func (c *compiler) carve(m *Mounts, kept map[string]steps.Ref) {
	for _, p := range m.Pinned {
		c.do(Files, "pin "+p, func() { c.bind(p, p, false, 0) })
	}
	for _, p := range m.ReadOnly {
		c.do(Files, "protect "+p, func() { c.bind(p, p, true, 0) })
	}
	for _, p := range m.Hidden {
		c.do(Files, "hide "+p, func() { c.hide(p, m, 0) })
	}
	for _, p := range m.Sockets {
		gone := c.l.Label()
		c.do(Files, "hide "+p, func() { c.hide(p, m, gone) })
		c.l.At(gone)
	}
	for _, p := range m.Shown {
		c.do(Files, "show "+p.Path, func() { c.put(kept[p.Path], p.Path, m) })
	}
	for _, p := range append(append([]string{}, m.Private...), hiddenAround(m)...) {
		c.do(Files, "close "+p, func() {
			if !slices.Contains(m.Private, p) { // to be passed through, not to be listed
				c.call("chmod "+p, unix.SYS_FCHMODAT, unix.AT_FDCWD, p, 0o111)
			}
			c.setReadOnly(unix.AT_FDCWD, p, 0)
		})
	}
}

// hide covers what is at path. A directory that something below is to be shown
// of gets a file system of its own to hang it into. Where gone is not 0, it goes on
// there if the path does not exist, or cannot be reached: the command cannot reach it
// either, unless it is another user's (a FUSE mount is closed to root, and not to its user).
func (c *compiler) hide(path string, m *Mounts, gone steps.Label) {
	directory, done := c.l.Label(), c.l.Label()
	unreached := []unix.Errno{unix.ENOENT}
	if c.plan.UID == nil {
		unreached = append(unreached, unix.EACCES)
	}
	looked := c.call("lstat "+path, sysFstatat, unix.AT_FDCWD, path, c.stat, unix.AT_SYMLINK_NOFOLLOW)
	if gone != 0 {
		looked.On(gone, unreached...)
	}
	c.l.If(steps.Value(c.stat+statMode), unix.S_IFMT, unix.S_IFDIR, directory)
	for _, kind := range []string{"/file", "/dir"} {
		if kind == "/dir" {
			c.l.At(directory)
			if slices.Contains(hiddenAround(m), path) {
				c.tmpfs(path, "mode=0755,size=1m", 0)
				break
			}
		}
		fd := c.l.Word(0)
		c.clone(maskDir+kind, fd)
		c.setReadOnly(steps.Value(fd), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		put := c.attach(fd, path)
		if gone != 0 {
			put.On(gone, unreached...)
		}
		c.l.Goto(done)
	}
	c.l.At(done)
}

// hiddenAround are the hidden directories that have something shown below them.
func hiddenAround(m *Mounts) []string {
	var dirs []string
	for _, h := range m.Hidden {
		if slices.ContainsFunc(m.Shown, func(p Shown) bool { return below(p.Path, h) }) {
			dirs = append(dirs, h)
		}
	}
	return dirs
}

// below tells whether path is in a tree, and not its root.
func below(path, tree string) bool { return strings.HasPrefix(path, tree+"/") }

// put hangs what was kept of path where it was.
func (c *compiler) put(kept steps.Ref, path string, m *Mounts) {
	have := c.l.Label()
	c.l.If(steps.Value(kept), negative, 0, have)
	c.fail("", unix.ENOENT) // keeping it failed, and has been told
	c.l.At(have)
	ours := append(append(hiddenAround(m), m.Private...), m.Temporary...)
	if m.Devices {
		ours = append(ours, "/dev")
	}
	if slices.ContainsFunc(ours, func(dir string) bool { return below(path, dir) }) {
		c.foothold(kept, path, ours)
	}
	c.attach(kept, path)
}

// foothold makes the file or directory that a mount is to be put on, where path is
// below a file system that was made here.
func (c *compiler) foothold(fd steps.Ref, path string, ours []string) {
	directory, done := c.l.Label(), c.l.Label()
	c.makeDirs(filepath.Dir(path), ours)
	c.call("fstat "+path, unix.SYS_FSTAT, steps.Value(fd), c.stat)
	c.l.If(steps.Value(c.stat+statMode), unix.S_IFMT, unix.S_IFDIR, directory)
	c.touch(path, 0o600).Ignore(unix.EEXIST)
	c.l.Goto(done)
	c.l.At(directory)
	c.call("mkdir "+path, unix.SYS_MKDIRAT, unix.AT_FDCWD, path, 0o755).Ignore(unix.EEXIST)
	c.l.At(done)
}

// touch makes an empty file.
func (c *compiler) touch(path string, mode int) steps.Step {
	return c.call("mknod "+path, unix.SYS_MKNODAT, unix.AT_FDCWD, path, unix.S_IFREG|mode, 0)
}
