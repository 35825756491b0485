package shim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// what describes a process that executes a Program, in its arguments.
const what = "sandbox"

// Args returns the arguments of a shim that reads its list from descriptor fd.
func Args(fd int) []string { return steps.Args(fd, what) }

// Is reports whether argv belongs to a shim. Compare the executable too: any program can have these arguments.
func Is(argv []string) bool { return steps.Is(argv, what) }

// Program is a plan compiled to a list of steps, and the purpose of each step.
type Program struct {
	list       *steps.List
	operations []operation
	words      map[int]string // prefix of a step's error
	needs      map[int]Need
}

// operation is a part of a layer, with its steps.
type operation struct {
	layer, name string
	from, to    int
	needed      bool // the command does not start without it
}

// compiler compiles a plan to a Program.
type compiler struct {
	Program
	plan    Plan
	l       *steps.List
	control int         // the descriptor of the control socket
	giveUp  steps.Label // reports the failure and exits
	stat    steps.Ref   // a struct stat for all operations
	ruleset steps.Ref   // of Landlock; negative: none
	mask    steps.Ref   // the signal mask for the command
	ended   steps.Ref   // what SIGCHLD does to the command, a struct sigaction
	tails   []func()    // compiled at the end of the list
}

// Compile compiles a plan for a process whose control socket is descriptor control.
func Compile(plan Plan, control int) *Program {
	c := &compiler{plan: plan, control: control}
	c.begin()
	l := c.l
	c.giveUp = l.Label()
	l.OnError(0)
	l.Call(unix.SYS_FCNTL, control, unix.F_SETFD, unix.FD_CLOEXEC)
	if plan.Clone != 0 {
		c.again()
	}
	c.process()
	c.mounts()
	c.network()
	c.rules()
	if plan.Init {
		c.fork()
	}
	c.privileges()
	c.restrict()
	c.filter()
	c.ask()
	c.command()
	return &c.Program
}

func (c *compiler) begin() {
	c.l = steps.New()
	c.Program = Program{list: c.l, words: map[int]string{}, needs: map[int]Need{}}
	c.stat = c.l.Space(int(sizeofStat))
	c.ruleset = c.l.Word(1<<64 - 1)
	c.mask, c.ended = c.l.Word(0), c.l.Space(32)
}

// File returns the list as a file: see steps.List.File.
func (p *Program) File() (*os.File, error) { return p.list.File() }

// Operations returns the names of the operations, in order.
func (p *Program) Operations() []string {
	var names []string
	for _, op := range p.operations {
		names = append(names, op.name)
	}
	return names
}

// do compiles one operation of a layer. If the operation fails, the shim reports the layer as degraded and continues
// after the operation, or exits if the plan does not allow that.
func (c *compiler) do(layer, name string, compile func()) {
	c.operation(layer, name, !c.plan.Degrade, compile)
}

func (c *compiler) operation(layer, name string, needed bool, compile func()) {
	if slices.Contains(c.plan.Without, layer) {
		return
	}
	op := operation{layer: layer, name: name, from: c.l.Len(), needed: needed}
	after := c.l.Label()
	if c.l.OnError(after); needed {
		c.l.OnError(c.giveUp)
	}
	if c.plan.Fail == name {
		c.l.Fail(unix.EPERM)
	}
	compile()
	c.l.At(after)
	c.l.OnError(c.giveUp)
	op.to = c.l.Len()
	c.operations = append(c.operations, op)
}

// call compiles a system call. words precede its error in messages.
func (c *compiler) call(words string, nr int, args ...any) steps.Step {
	if words != "" {
		c.words[c.l.Len()] = words
	}
	return c.l.Call(nr, args...)
}

func (c *compiler) fail(words string, errno unix.Errno) {
	if words != "" {
		c.words[c.l.Len()] = words
	}
	c.l.Fail(errno)
}

// Outcome is what a shim reports about its layers.
type Outcome struct {
	Layers   []Report
	Stopped  string   // the layer that keeps the command from starting
	Failed   []string // operations
	Unusable []Unusable
}

// Outcome returns the layers' reports from the steps that failed.
func (p *Program) Outcome(failed []steps.Failure) Outcome {
	var o Outcome
	for _, f := range failed {
		if need, ok := p.needs[f.Step]; ok {
			o.Unusable = append(o.Unusable, Unusable{need.Path, int(f.Errno)})
		}
	}
	for _, op := range p.operations {
		at := slices.IndexFunc(o.Layers, func(r Report) bool { return r.Layer == op.layer })
		if at < 0 {
			at = len(o.Layers)
			o.Layers = append(o.Layers, Report{Layer: op.layer, State: Enforced})
		}
		for _, f := range failed {
			if f.Step < op.from || f.Step >= op.to {
				continue
			}
			o.Failed = append(o.Failed, op.name)
			if r := &o.Layers[at]; r.State == Enforced {
				r.State = cmp.Or(map[string]string{Namespaces: Unavailable, Sockets: Unavailable}[op.layer], Degraded)
				r.Reason, r.Errno = op.name+": "+p.reason(f), int(f.Errno)
			}
			if op.needed {
				o.Stopped = op.layer
				return o
			}
		}
	}
	return o
}

func (p *Program) reason(f steps.Failure) string {
	if words := p.words[f.Step]; words != "" {
		return words + ": " + f.Errno.Error()
	}
	return f.Errno.Error()
}

// place mounts the places, outer ones before inner ones, and then closes the directories that the shim made.
func (c *compiler) place(m *Mounts, kept map[string]steps.Ref) {
	ours := m.ours()
	for _, p := range m.Places {
		switch p.As {
		case Writable:
			c.do(Files, "make writable "+p.Path, func() { c.put(kept[p.Path], p.Path, ours) })
		case Shown:
			c.do(Files, "show "+p.Path, func() { c.put(kept[p.Path], p.Path, ours) })
		case Pinned:
			c.present("pin "+p.Path, func(gone steps.Label) { c.bind(p, false, gone) })
		case ReadOnly:
			c.present("protect "+p.Path, func(gone steps.Label) { c.bind(p, true, gone) })
		case Linked:
			c.present("link "+p.Path, func(gone steps.Label) { c.attach(kept[p.Path], p.Path).On(gone, absent...) })
		case Hidden:
			gone := steps.Label(0)
			if m.layered(p.Path) { // an earlier run may have removed it from its layer
				gone = c.l.Label()
			}
			c.do(Files, "hide "+p.Path, func() { c.hide(p.Path, ours[p.Path], gone) })
			if gone != 0 {
				c.l.At(gone)
			}
		case Socket:
			gone := c.l.Label()
			c.do(Files, "hide "+p.Path, func() { c.hide(p.Path, false, gone) })
			c.l.At(gone)
		case Private:
			c.do(Files, "cover "+p.Path, func() {
				c.makeDirs(p.Path, ours)
				c.tmpfs(p.Path, "mode=0755,size=1m", 0)
			})
		case Temporary:
			c.do(Files, "mount "+p.Path, func() {
				c.makeDirs(p.Path, ours)
				c.tmpfs(p.Path, "mode=1777", 0)
			})
		case Layered:
			c.do(Files, OverlayHome, func() {
				c.makeDirs(p.Path, ours)
				c.overlay(p, kept)
			})
		}
	}
	for _, p := range m.Places {
		if p.As != Private && (p.As != Hidden || !ours[p.Path]) {
			continue
		}
		c.do(Files, "close "+p.Path, func() {
			if p.As == Hidden { // it may be passed through, but not listed
				c.call("chmod "+p.Path, unix.SYS_FCHMODAT, unix.AT_FDCWD, p.Path, 0o111)
			}
			c.setReadOnly(unix.AT_FDCWD, p.Path, 0)
		})
	}
}

// present compiles an operation on something that somebody may have removed since the plan was made. The list continues
// at gone if it is absent.
func (c *compiler) present(name string, compile func(gone steps.Label)) {
	gone := c.l.Label()
	c.do(Files, name, func() { compile(gone) })
	c.l.At(gone)
}

// absent are the errors for a path that nothing has.
var absent = []unix.Errno{unix.ENOENT, unix.ENOTDIR}

// ours are the directories that become file systems of the shim's: those that are empty, and those that are hidden
// with something shown below them.
func (m *Mounts) ours() map[string]bool {
	dirs, hidden := map[string]bool{}, map[string]bool{}
	if m.Devices {
		dirs["/dev"] = true
	}
	for _, p := range m.Places {
		switch p.As {
		case Private, Temporary, Layered:
			dirs[p.Path] = true
		case Hidden:
			hidden[p.Path] = true
		case Writable, Shown:
			for at := filepath.Dir(p.Path); at != "/"; at = filepath.Dir(at) {
				if hidden[at] {
					dirs[at] = true
				}
			}
		}
	}
	return dirs
}

// layered reports whether path is in a place that is Layered.
func (m *Mounts) layered(path string) bool {
	return slices.ContainsFunc(m.Places, func(p Place) bool {
		return p.As == Layered && strings.HasPrefix(path, p.Path+"/")
	})
}

// OverlayHome is the operation that mounts a layer.
const OverlayHome = "mount the private home"

// overlay mounts a layer over a place. Both have short names while that happens: names in options of mount(2) would
// need escapes, and mountinfo shows them to the command.
func (c *compiler) overlay(p Place, kept map[string]steps.Ref) {
	dirs := []string{maskDir + "/home", maskDir + "/layer"}
	for i, from := range []steps.Ref{kept[p.Path], kept[p.From]} {
		have := c.l.Label()
		c.l.If(steps.Value(from), negative, 0, have)
		c.fail("", unix.ENOENT) // cloning failed, and was reported
		c.l.At(have)
		c.call("mkdir "+dirs[i], unix.SYS_MKDIRAT, unix.AT_FDCWD, dirs[i], 0o700)
		c.attach(from, dirs[i])
	}
	c.call("overlay on "+p.Path, unix.SYS_MOUNT, "overlay", p.Path, "overlay", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("lowerdir=%s,upperdir=%s/%s,workdir=%[2]s/%[4]s,userxattr,index=off", dirs[0], dirs[1],
			LayerDirs[0], LayerDirs[1]))
	for _, dir := range dirs {
		c.call("unmount "+dir, unix.SYS_UMOUNT2, dir, unix.MNT_DETACH)
		c.call("remove "+dir, unix.SYS_UNLINKAT, unix.AT_FDCWD, dir, unix.AT_REMOVEDIR)
	}
}

// within reports whether path is in one of dirs, and none of them itself.
func within(path string, dirs map[string]bool) bool {
	for at := filepath.Dir(path); at != "/"; at = filepath.Dir(at) {
		if dirs[at] {
			return true
		}
	}
	return false
}

// hide covers what is at path. With around, something is shown below it: it becomes a separate file system, as a
// place to mount that. If gone is not 0, and path does not exist or cannot be reached, the list continues at gone:
// the command cannot reach it either, unless it runs as another user (a FUSE mount is closed to root, but not to its
// owner).
func (c *compiler) hide(path string, around bool, gone steps.Label) {
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
			if around {
				c.tmpfs(path, "mode=0755,size=1m", 0)
				break
			}
		}
		fd := c.l.Word(0)
		c.copy(Place{Path: maskDir + kind, Flat: true}, fd)
		put := c.attach(fd, path)
		if gone != 0 {
			put.On(gone, unreached...)
		}
		c.l.Goto(done)
	}
	c.l.At(done)
}

// put mounts a kept clone of path at path again.
func (c *compiler) put(kept steps.Ref, path string, ours map[string]bool) {
	have := c.l.Label()
	c.l.If(steps.Value(kept), negative, 0, have)
	c.fail("", unix.ENOENT) // cloning failed, and was reported
	c.l.At(have)
	if within(path, ours) {
		c.foothold(kept, path, ours)
	}
	c.attach(kept, path)
}

// foothold makes the file or directory for a mount, if path is on a file system that the shim made.
func (c *compiler) foothold(fd steps.Ref, path string, ours map[string]bool) {
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

// maskDir holds, on the tmpfs at /dev, what covers hidden files while the mounts are made. It is removed before the
// command starts.
const maskDir = "/dev/.assay-run"

// devices are the devices for every program. /dev/pts is a new instance without other processes' terminals.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// procReadOnly are the parts of /proc that belong to the machine, not to a process.
var procReadOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "tty", "driver"}

// devices replaces /dev. It also makes the masks there, since /dev is always a new file system.
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
		c.call(
			"mount devpts", unix.SYS_MOUNT, "devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
			"newinstance,ptmxmode=0666,mode=620",
		)
		c.tmpfs("/dev/shm", "mode=1777", 0)
		c.call("mkdir "+maskDir, unix.SYS_MKDIRAT, unix.AT_FDCWD, maskDir+"/dir", 0)
		c.touch(maskDir+"/file", 0)
		for _, kind := range []string{"/dir", "/file"} { // copies are read-only, too
			c.bind(Place{Path: maskDir + kind, Flat: true}, true, 0)
		}
	})
}

// terminalPath limits the path of a terminal, in bytes.
const terminalPath = 128

// cloneTerminal opens a detached copy of the terminal of a stream, if any, since /dev/pts is new and ttyname(3) looks
// in /dev.
func (c *compiler) cloneTerminal(terminal steps.Ref) {
	done := c.l.Label()
	attributes := c.l.Space(64) // struct termios
	for fd := range 3 {
		other := c.l.Label()
		path := c.l.Space(terminalPath)
		c.l.Call(unix.SYS_IOCTL, fd, unix.TCGETS, attributes).On(other, steps.AnyErrno)
		c.l.Call(unix.SYS_READLINKAT, unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), path, terminalPath-1).On(
			other, steps.AnyErrno,
		)
		dev, is := binary.LittleEndian.Uint64([]byte("/dev/\x00\x00\x00")), c.l.Label()
		c.l.If(steps.Value(path), 1<<40-1, dev, is)
		c.l.Goto(other)
		c.l.At(is)
		c.call("open_tree of a terminal", unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, cloneTree).Into(terminal).On(
			other, unix.ENOENT,
		)
		c.l.Goto(done)
		c.l.At(other)
	}
	c.l.At(done)
}

// finishDevices removes what was only needed to make the mounts: the masks, and the right to write to /dev. By now,
// everything that is shown below is mounted.
func (c *compiler) finishDevices() {
	c.do(Files, "make /dev read-only", func() {
		for _, kind := range []string{"/dir", "/file"} {
			c.call("unmount "+maskDir+kind, unix.SYS_UMOUNT2, maskDir+kind, unix.MNT_DETACH)
		}
		c.call("remove "+maskDir, unix.SYS_UNLINKAT, unix.AT_FDCWD, maskDir+"/file", 0)
		c.call("remove "+maskDir, unix.SYS_UNLINKAT, unix.AT_FDCWD, maskDir+"/dir", unix.AT_REMOVEDIR)
		c.call("remove "+maskDir, unix.SYS_UNLINKAT, unix.AT_FDCWD, maskDir, unix.AT_REMOVEDIR)
		c.setReadOnly(unix.AT_FDCWD, "/dev", 0)
	})
}

func (c *compiler) proc() {
	c.do(Files, "mount /proc", func() {
		c.call("mount proc /proc", unix.SYS_MOUNT, "proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			0)
	})
	c.do(Files, "make /proc/sys read-only", func() {
		for _, name := range procReadOnly {
			absent := c.l.Label()
			c.bind(Place{Path: "/proc/" + name}, true, absent)
			c.l.At(absent)
		}
	})
}

const (
	sizeofStat = unsafe.Sizeof(unix.Stat_t{})
	statMode   = steps.Ref(unsafe.Offsetof(unix.Stat_t{}.Mode))
	negative   = uint64(1 << 63)
	all        = ^uint64(0)
)

// mounts arranges the mount namespace in place: every path keeps its name, and files are only created on new file
// systems. Trees that stay writable are cloned before everything becomes read-only, and mounted again after that.
func (c *compiler) mounts() {
	m := c.plan.Mounts
	if m == nil {
		return
	}
	umask := c.l.Word(0)
	c.l.Call(unix.SYS_UMASK, 0).Into(umask)
	c.do(Files, "look at the paths", func() { c.absolute(m) })
	c.do(Files, "make / private", func() { c.l.Call(unix.SYS_MOUNT, 0, "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0) })
	for _, p := range m.Places {
		if p.As == Joined { // before anything covers From
			c.do(Files, "join "+p.Path, func() {
				c.call("overlay on "+p.Path, unix.SYS_MOUNT, "overlay", p.Path, "overlay", unix.MS_NOSUID|unix.MS_NODEV,
					"lowerdir="+p.From+":"+p.Path)
			})
		}
	}
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
	if m.Devices {
		c.finishDevices()
	}
	c.do(Files, "chdir", func() { // the working directory is now covered by its new mount
		if c.plan.Dir != "" {
			c.l.Call(unix.SYS_CHDIR, c.plan.Dir)
		}
	})
	c.l.Call(unix.SYS_UMASK, steps.Value(umask))
}

// absolute refuses paths that would depend on the current directory.
func (c *compiler) absolute(m *Mounts) {
	for _, p := range m.Places {
		if !filepath.IsAbs(p.Path) || p.From != "" && !filepath.IsAbs(p.From) {
			c.fail("mount "+p.Path, unix.EINVAL)
		}
	}
}

// clone opens a detached copy of the mount at path, with everything below it.
func (c *compiler) clone(path string, fd steps.Ref) steps.Step {
	return c.call("open_tree "+path, unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, cloneTree).Into(fd)
}

const cloneTree = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE | unix.AT_SYMLINK_NOFOLLOW

// attach mounts a detached mount at path, and closes it.
func (c *compiler) attach(fd steps.Ref, path string) steps.Step {
	step := c.call(
		"move_mount "+path, unix.SYS_MOVE_MOUNT, steps.Value(fd), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH,
	)
	c.close(fd)
	return step
}

func (c *compiler) close(fd steps.Ref) { c.l.Call(unix.SYS_CLOSE, steps.Value(fd)) }

func (c *compiler) setReadOnly(fd any, path string, flags int) {
	attr := c.structure(mountAttr, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID)
	c.call("mount_setattr "+path, unix.SYS_MOUNT_SETATTR, fd, path, flags, attr, mountAttr)
}

const mountAttr = int(unsafe.Sizeof(unix.MountAttr{}))

// structure reserves a struct of size bytes whose first word is value.
func (c *compiler) structure(size int, value uint64) steps.Ref {
	at := c.l.Word(value)
	c.l.Space(size - 8)
	return at
}

// bind mounts a copy of a place over itself. If gone is not 0, and it does not exist, the list continues at gone.
func (c *compiler) bind(p Place, readOnly bool, gone steps.Label) {
	fd := c.l.Word(0)
	opened := c.copy(p, fd)
	if gone != 0 {
		opened.On(gone, absent...)
	}
	if readOnly {
		c.setReadOnly(steps.Value(fd), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	}
	c.attach(fd, p.Path)
}

// copy opens a detached copy of a place. A copy with everything below it takes as long as there are mounts beside it.
func (c *compiler) copy(p Place, fd steps.Ref) steps.Step {
	from := cmp.Or(p.From, p.Path)
	if !p.Flat {
		return c.clone(from, fd)
	}
	return c.call("open_tree "+from, unix.SYS_OPEN_TREE, unix.AT_FDCWD, from, cloneTree&^unix.AT_RECURSIVE).Into(fd)
}

// keep opens a detached copy of a place that stays as it is. If something was mounted below it since the plan was made,
// a user namespace refuses a copy without it.
func (c *compiler) keep(p Place, fd steps.Ref) {
	flat := c.copy(p, fd)
	if p.Flat {
		again, done := c.l.Label(), c.l.Label()
		flat.On(again, unix.EINVAL)
		c.l.Goto(done)
		c.l.At(again)
		c.clone(cmp.Or(p.From, p.Path), fd)
		c.l.At(done)
	}
}

func (c *compiler) tmpfs(path, options string, flags int) {
	c.call("mount tmpfs "+path, unix.SYS_MOUNT, "tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options)
}

// clones opens what will be needed once it is covered or read-only. It returns the words that hold the descriptors,
// by path.
func (c *compiler) clones(m *Mounts) map[string]steps.Ref {
	fds := map[string]steps.Ref{}
	for _, p := range m.Places {
		if p.As == Layered { // the layer, and the place without what is mounted in it
			for i, path := range []string{p.Path, p.From} {
				kept, fd := c.l.Word(all), c.l.Word(0)
				c.do(Files, "keep "+[]string{"the home", "the layer"}[i], func() {
					c.copy(Place{Path: path, Flat: true}, fd)
					c.l.Set(kept, steps.Value(fd))
				})
				fds[path] = kept
			}
			continue
		}
		if p.As != Writable && p.As != Shown && p.As != Linked {
			continue
		}
		kept, fd := c.l.Word(all), c.l.Word(0)
		c.do(Files, "keep "+p.Path, func() {
			c.keep(p, fd)
			if p.As == Shown {
				c.setReadOnly(steps.Value(fd), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
			}
			c.l.Set(kept, steps.Value(fd))
		})
		fds[p.Path] = kept
	}
	return fds
}

// makeDirs makes path and the directories above it, if it is on a file system that the shim made.
func (c *compiler) makeDirs(path string, ours map[string]bool) {
	var made []string
	for at := path; within(at, ours); at = filepath.Dir(at) {
		made = append(made, at)
	}
	slices.Reverse(made)
	for _, dir := range made {
		c.call("mkdir "+dir, unix.SYS_MKDIRAT, unix.AT_FDCWD, dir, 0o755).Ignore(unix.EEXIST)
	}
}

// network prepares the network namespace. Everything in it belongs to the command, so the ports are always free.
func (c *compiler) network() {
	if c.plan.Loopback {
		c.do(Network, "bring up lo", func() {
			fd := c.l.Word(0)
			ifreq := c.l.Bytes(append(append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...), make([]byte, 24)...))
			c.l.Put(ifreq+unix.IFNAMSIZ, unix.IFF_UP|unix.IFF_RUNNING)
			c.l.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).Into(fd)
			c.l.Call(unix.SYS_IOCTL, steps.Value(fd), unix.SIOCSIFFLAGS, ifreq)
			c.close(fd)
		})
	}
	for _, port := range c.plan.Ports {
		c.do(Network, "listen for the proxy on port "+strconv.Itoa(port), func() {
			m := c.message(KindListener)
			c.l.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0).Into(m.fd)
			c.l.Call(unix.SYS_BIND, steps.Value(m.fd), c.l.Bytes(loopback(port)), sizeofSockaddr)
			c.l.Call(unix.SYS_LISTEN, steps.Value(m.fd), 128)
			c.sendFile(m)
			c.close(m.fd)
		})
	}
}

const sizeofSockaddr = 16 // struct sockaddr_in

// loopback is the address of a port inside, for connect(2).
func loopback(port int) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	b = binary.BigEndian.AppendUint16(b, uint16(port))
	return append(b, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
}

// message is a message to the runner in the list's data.
type message struct {
	text   steps.Ref // the kind, and two words
	fd     steps.Ref // the word with a descriptor to send along
	header steps.Ref // struct msghdr
}

func (c *compiler) message(kind uint64) message {
	m := message{text: c.l.Word(kind)}
	c.l.Space(messageSize - 8)
	iov := c.l.Space(16)
	c.l.Pointer(iov, m.text)
	c.l.Put(iov+8, messageSize)
	control := c.l.Word(20) // struct cmsghdr with one descriptor
	c.l.Bytes(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, unix.SOL_SOCKET), unix.SCM_RIGHTS))
	m.fd = c.l.Word(0)
	m.header = c.l.Space(56)
	c.l.Pointer(m.header+16, iov)
	c.l.Put(m.header+24, 1)
	c.l.Pointer(m.header+32, control)
	c.l.Put(m.header+40, 24)
	return m
}

// send sends a message without a descriptor.
func (c *compiler) send(m message) steps.Step {
	return c.l.Call(unix.SYS_SENDTO, c.control, m.text, messageSize, unix.MSG_NOSIGNAL, 0, 0)
}

func (c *compiler) sendFile(m message) steps.Step {
	return c.l.Call(unix.SYS_SENDMSG, c.control, m.header, unix.MSG_NOSIGNAL)
}

// process protects the shim from the command, and closes every descriptor that the command must not have.
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

// privileges gives up what the command must not have.
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

// capset keeps the given capabilities, of the first 32, and drops all others.
func (c *compiler) capset(capabilities ...int) {
	var bits uint32
	for _, n := range capabilities {
		bits |= 1 << n
	}
	c.l.Call(unix.SYS_CAPSET, c.words32(unix.LINUX_CAPABILITY_VERSION_3, 0), c.words32(bits, bits, 0, 0, 0, 0))
}

// dropBounding empties the bounding set, so that not even root's exec regains a capability. A process without
// CAP_SETPCAP cannot regain any: see no_new_privs.
func (c *compiler) dropBounding() {
	may, one, done, refused := c.l.Label(), c.l.Label(), c.l.Label(), c.l.Label()
	has := c.words32(0, 0, 0, 0, 0, 0) // effective, permitted and inheritable sets, in two halves
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
	// The kernel knows no more capabilities.
	c.l.Call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, steps.Value(n), 0, 0, 0).On(done, unix.EINVAL)
	c.l.Make(n, steps.Value(n), 0, all, 1)
	c.l.Goto(one)
	c.l.At(done)
}

// user becomes the plan's user. It belongs to no layer that may be missing: a command for another user never runs as
// the runner's user.
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

// handOver makes the plan's user own the pipes of the streams, and a terminal that was made for the command, since
// opening /dev/stderr opens them again. If that fails, the streams themselves still work.
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

// look finds out, as the command's user, which of the plan's needs it cannot use. access(2) checks for the real user,
// which is the command's by now.
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
		program := c.program(c.plan.Filter)
		again, done := c.l.Label(), c.l.Label()
		c.l.Call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, program).On(again, unix.EACCES)
		c.l.Goto(done)
		c.l.At(again) // without CAP_SYS_ADMIN, it needs no_new_privs
		c.noNewPrivs()
		c.l.Call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, program)
		c.l.At(done)
	})
}

// program stores a seccomp program as a struct sock_fprog.
func (c *compiler) program(list []Instruction) steps.Ref {
	var b []byte
	for _, in := range list {
		b = append(binary.NativeEndian.AppendUint16(b, in.Code), in.Jt, in.Jf)
		b = binary.NativeEndian.AppendUint32(b, in.K)
	}
	program := c.structure(16, uint64(len(list)))
	c.l.Pointer(program+8, c.l.Bytes(b))
	return program
}

// ask loads the program that asks the runner, and sends it what it needs to answer. A program that another listener
// watches already cannot have a second one (EBUSY). Without WAIT_KILLABLE_RECV (Linux 5.19), a signal would make the
// command's call again after the runner has made it.
func (c *compiler) ask() {
	if len(c.plan.Asks) == 0 {
		return
	}
	c.operation(Sockets, "have connections decided", c.plan.MustAsk, func() {
		diagnostics, listener := c.message(KindDiagnostics), c.message(KindAsks)
		c.call("socket for diagnostics", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			unix.NETLINK_SOCK_DIAG).Into(diagnostics.fd)
		c.sendFile(diagnostics)
		c.close(diagnostics.fd)
		c.call("seccomp", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
			unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
			c.program(c.plan.Asks)).Into(listener.fd)
		c.sendFile(listener)
		c.close(listener.fd)
	})
}

// Restrict puts the calling thread, and what it executes or starts, under a Landlock ruleset. The caller must have
// locked the goroutine to the thread. The error names what failed.
func Restrict(r *Ruleset) error {
	c := &compiler{plan: Plan{Landlock: r}}
	c.begin()
	c.do(Landlock, "prctl PR_SET_NO_NEW_PRIVS", c.noNewPrivs)
	c.rules()
	c.restrict()
	for _, l := range c.Outcome(c.list.Run()).Layers {
		if l.State != Enforced {
			return errors.New(l.Reason)
		}
	}
	return nil
}

// rules makes the Landlock ruleset. The command's user may be unable to open its paths.
func (c *compiler) rules() {
	r := c.plan.Landlock
	if r == nil {
		return
	}
	attr := c.structure(int(unsafe.Sizeof(unix.LandlockRulesetAttr{})), r.FS)
	c.l.Put(attr+8, r.Net)
	c.l.Put(attr+16, r.Scoped)
	c.do(Landlock, "landlock_create_ruleset", func() {
		c.l.Call(unix.SYS_LANDLOCK_CREATE_RULESET, attr, int(unsafe.Sizeof(unix.LandlockRulesetAttr{})),
			0).Into(c.ruleset)
	})
	none := c.l.Label()
	c.l.If(steps.Value(c.ruleset), negative, negative, none)
	// A missing rule only denies more. But nothing else would report that it is missing.
	c.do(Landlock, "landlock_add_rule", func() {
		for _, p := range r.Paths {
			c.addPath(p)
		}
		for _, p := range r.Ports {
			rule := c.structure(16, p.Access)
			c.l.Put(rule+8, uint64(p.Port))
			c.addRule(fmt.Sprintf("port %d", p.Port), landlockRuleNetPort, rule)
		}
	})
	c.l.At(none)
}

func (c *compiler) addRule(words string, kind int, rule steps.Ref) steps.Step {
	return c.call(words, unix.SYS_LANDLOCK_ADD_RULE, steps.Value(c.ruleset), kind, rule, 0)
}

// restrict puts this process, and what it starts, under the ruleset.
func (c *compiler) restrict() {
	if c.plan.Landlock == nil {
		return
	}
	none := c.l.Label()
	c.l.If(steps.Value(c.ruleset), negative, negative, none)
	c.do(Landlock, "landlock_restrict_self", func() {
		c.l.Call(unix.SYS_LANDLOCK_RESTRICT_SELF, steps.Value(c.ruleset), c.plan.Landlock.Log)
		c.close(c.ruleset)
	})
	c.l.At(none)
}

const landlockRuleNetPort = 2 // LANDLOCK_RULE_NET_PORT

// fileAccess are the rights that apply to files, not only to directories.
const fileAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_READ_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

func (c *compiler) addPath(p PathRule) {
	next, done, file := c.l.Label(), c.l.Label(), c.l.Label()
	rule := c.structure(16, p.Access) // struct landlock_path_beneath_attr, with the descriptor at offset 8
	fd := rule + 8
	opened := c.call(p.Path, unix.SYS_OPENAT, unix.AT_FDCWD, p.Path, unix.O_PATH|unix.O_CLOEXEC, 0).Into(fd)
	// The kernel refuses directory rights for a file, which tells the two apart.
	added := c.addRule(p.Path, unix.LANDLOCK_RULE_PATH_BENEATH, rule)
	added.On(file, unix.EINVAL)
	if p.Optional {
		opened.On(next, unix.ENOENT, unix.EACCES)
		added.On(done, unix.EBADFD) // a pipe or a socket, for which there are no rules
	}
	c.l.Goto(done)
	c.l.At(file)
	if p.Access&fileAccess != 0 {
		c.l.Set(rule, p.Access&fileAccess)
		c.addRule(p.Path, unix.LANDLOCK_RULE_PATH_BENEATH, rule)
	}
	c.l.At(done)
	c.close(fd)
	c.l.At(next)
}

// words32 stores 32-bit integers in the list's data.
func (c *compiler) words32(values ...uint32) steps.Ref {
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return c.l.Bytes(b)
}

// again continues in a child in the plan's namespaces, and exits like that child.
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
		// A stop signal of the terminal stops it with the command. It ends after the command.
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

// exit returns a label where the list exits with the status of a wait status. It is compiled at the end of the list.
func (c *compiler) exit(status steps.Ref) steps.Label {
	return c.tail(func() {
		code := c.l.Word(0)
		c.l.Make(code, steps.Value(status), 8, 0xff, 0)
		c.l.Call(unix.SYS_EXIT_GROUP, steps.Value(code))
	})
}

// tail compiles something at the end of the list.
func (c *compiler) tail(compile func()) steps.Label {
	label := c.l.Label()
	c.tails = append(c.tails, func() {
		c.l.At(label)
		compile()
	})
	return label
}

// letGo closes the shim's copies of the command's streams: a reader of one would wait for its end forever.
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

// fork continues in a child, which becomes the command. The process itself stays as init. /proc shows it to the
// command, which can neither read nor signal it.
//
// A process 1 without signal handlers gets only SIGKILL and SIGSTOP, and only from outside its namespace. The runner
// signals the command itself.
func (c *compiler) fork() {
	l := c.l
	child, pid, m := l.Label(), l.Word(0), c.message(KindStarted)
	l.OnError(0)
	l.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, l.Word(signals(unix.SIGCHLD, unix.SIGTTOU)), c.mask, 8)
	// An init that ignores SIGCHLD, as its caller may do, could wait for nobody.
	l.Call(unix.SYS_RT_SIGACTION, int(unix.SIGCHLD), l.Space(32), c.ended, 8)
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

// serve reaps, reports every change of the command's state to the runner, and dials for it. It ends with the last
// process of the namespace, since its own end would kill the others, or when the runner is gone.
func (c *compiler) serve(pid steps.Ref) {
	l := c.l
	loop, reap, told, unasked := l.Label(), l.Label(), l.Label(), l.Label()
	empty, gone := c.tail(func() { l.Call(unix.SYS_EXIT_GROUP, 0) }), c.tail(
		func() { l.Call(unix.SYS_EXIT_GROUP, exitShim) },
	)
	children, got := l.Word(0), l.Word(0)
	state := c.message(KindState)
	status := state.text + 8
	// Two struct pollfd: for signals of children, and for the runner.
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
		l.Make(code, steps.Value(status), 0, 0x7f, 128) // process 1 cannot die of a signal
		l.Call(unix.SYS_EXIT_GROUP, steps.Value(code))
	}
	l.Goto(reap)

	l.At(loop)
	l.Call(unix.SYS_PPOLL, poll, 2, 0, 0, 0)
	l.If(steps.Value(poll+8), 0xffff<<48, 0, unasked) // no request of the runner
	c.dial(gone)
	l.At(unasked)
	l.Call(unix.SYS_READ, steps.Value(children), info, 128).Ignore(unix.EAGAIN)
	l.Goto(reap)
}

// dial makes a socket for the runner and sends it before it connects: a connect on the loopback device may block on a
// program that does not accept, and must not block anything else.
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

// command reports the layers, and becomes the command.
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
			if c.plan.OwnTerminal { // job control needs a process group with a number in this namespace
				group := l.Word(0)
				l.Call(unix.SYS_SETPGID, 0, 0)
				l.Call(unix.SYS_GETPID).Into(group)
				l.Call(unix.SYS_IOCTL, 0, unix.TIOCSPGRP, group)
			}
			if c.plan.Dir != "" {
				l.Call(unix.SYS_CHDIR, c.plan.Dir)
			}
			l.Call(unix.SYS_RT_SIGACTION, int(unix.SIGCHLD), c.ended, 0, 8)
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

// tell reports which steps failed. If that is impossible, the shim exits.
func (c *compiler) tell(kind uint64) {
	size := c.l.Word(0)
	c.l.OnError(0)
	c.l.Set(c.l.Failures(), kind)
	c.l.Make(size, steps.Value(c.l.Failures()+8), 0, all, 16)
	c.l.Call(unix.SYS_SENDTO, c.control, c.l.Failures(), steps.Value(size), unix.MSG_NOSIGNAL, 0, 0)
}

// wait waits for the runner's go-ahead. It exits if the runner is gone.
func (c *compiler) wait() {
	l := c.l
	gone, said, size, word := c.tail(func() { l.Call(unix.SYS_EXIT_GROUP, exitShim) }), l.Label(), l.Word(0), l.Word(0)
	l.Call(unix.SYS_RECVFROM, c.control, word, 8, 0, 0, 0).Into(size).On(gone, steps.AnyErrno)
	l.If(steps.Value(size), all, uint64(len(goAhead)), said)
	l.Goto(gone)
	l.At(said)
}
