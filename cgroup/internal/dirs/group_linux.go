package dirs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Group is the directories of one group.
type Group struct {
	session *Session
	name    string
	dirs    []dir // the primary first
	mu      sync.Mutex
	l       *launcher // a thread of ours in the v1 hierarchies; nil when there is none

	having sync.Mutex // guards containers
	// containers has the directory of the session's containers in the agent's group, and is empty in others. See
	// TakeContainers.
	containers []dir
}

// Path is the group's directory on the primary hierarchy.
func (g *Group) Path() string { return g.dirs[0].path }

// ID is the inode number of the cgroup2 directory; 0 without cgroup2.
func (g *Group) ID() uint64 {
	var st unix.Stat_t
	if !g.dirs[0].v2 || unix.Stat(g.dirs[0].path, &st) != nil {
		return 0
	}
	return st.Ino
}

// List returns the pids of the live members, also of those in cgroups that
// they made themselves.
func (g *Group) List() ([]int, error) {
	if !exists(g.dirs[0].path) {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.dirs[0].path, os.ErrNotExist)
	}
	return g.list(), nil
}

func (g *Group) list() []int { return pids(g.all()) }

func (g *Group) all() []dir {
	g.having.Lock()
	defer g.having.Unlock()
	return slices.Concat(g.dirs, g.containers)
}

// TakeContainers makes the processes of the session's containers members of g, and no more of the agent's group.
func (g *Group) TakeContainers(agent *Group) {
	agent.having.Lock()
	taken := agent.containers
	agent.containers = nil
	agent.having.Unlock()
	g.having.Lock()
	defer g.having.Unlock()
	g.containers = append(g.containers, taken...)
}

// Signal sends a signal to every member, also to those forked meanwhile.
func (g *Group) Signal(sig unix.Signal) error { return procs.Signal(g.list, sig) }

// Freeze stops every member, or continues them. Without cgroup2 and a v1 freezer it sends signals.
func (g *Group) Freeze(on bool) error {
	if freeze(g.all(), on) {
		return nil
	}
	if on {
		return g.Signal(unix.SIGSTOP)
	}
	return g.Signal(unix.SIGCONT)
}

// Kill ends every member. None of them can fork any more when it returns.
func (g *Group) Kill() error { return kill(g.all()) }

// Empty reports whether the group has no live member.
func (g *Group) Empty() bool { return exists(g.dirs[0].path) && empty(g.all()) }

// Wait returns when the group has no live member, or with ctx's error.
func (g *Group) Wait(ctx context.Context) error { return wait(ctx, g.all()) }

func wait(ctx context.Context, dirs []dir) error {
	return procs.Wait(ctx, func() []int {
		if empty(dirs) {
			return nil
		}
		return pids(dirs)
	})
}

// joinFiles are the v1 files through which a thread joins the group.
func (g *Group) joinFiles(name string) []string {
	var files []string
	for _, d := range g.dirs {
		if !d.v2 {
			files = append(files, filepath.Join(d.path, name))
		}
	}
	return files
}

// Start starts a command in the group: it is a member before its first
// instruction.
func (g *Group) Start(cmd *exec.Cmd, by procs.Starter) error {
	attr, restore := procs.Attributes(cmd)
	defer restore()

	s := g.session
	if g.dirs[0].v2 && s.host.clone == nil {
		fd, err := unix.Open(g.dirs[0].path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("start in cgroup: %w", &os.PathError{Op: "open", Path: g.dirs[0].path, Err: err})
		}
		defer unix.Close(fd)
		attr.UseCgroupFD, attr.CgroupFD = true, fd
		if len(g.dirs) == 1 {
			return by.Fork(cmd)
		}
		if !s.viaShim {
			return g.fork(cmd, by)
		}
		return g.join(cmd, g.joinFiles("tasks"), by)
	}
	files := g.joinFiles("tasks")
	if g.dirs[0].v2 {
		files = append(files, filepath.Join(g.dirs[0].path, "cgroup.procs"))
	} else if !s.viaShim {
		return g.fork(cmd, by) // legacy
	}
	return g.join(cmd, files, by)
}

// fork forks a command from a thread that has joined the v1 directories.
func (g *Group) fork(cmd *exec.Cmd, by procs.Starter) error {
	if by.Thread == nil {
		return g.launch(cmd)
	}
	defer g.session.noteOurTasks()
	return by.Thread(cmd, g.joinFiles("tasks"), g.session.homeFiles())
}

// join starts a command through a helper that joins the group through files.
func (g *Group) join(cmd *exec.Cmd, files []string, by procs.Starter) error {
	defer g.session.noteOurTasks()
	return by.Join(cmd, files)
}

// launcher is an OS thread of ours that has joined a group's v1 directories, so that its children start there: v1 can
// attach a single thread. It is never the main thread, whose cgroups /proc shows as those of the process.
type launcher struct {
	cmd  chan *exec.Cmd
	err  chan error
	left chan struct{} // closed when the thread is out of the group again
}

// warm readies the launcher while the runner does other things.
func (g *Group) warm() {
	if g.session.viaShim || len(g.joinFiles("tasks")) == 0 ||
		g.dirs[0].v2 && g.session.host.clone != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.l = g.newLauncher()
}

// launch starts cmd from the warm launcher, or from a new one.
func (g *Group) launch(cmd *exec.Cmd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.l
	if l == nil || l.cmd == nil {
		l = g.newLauncher()
		g.l = l
	}
	l.cmd <- cmd
	l.cmd = nil // a launcher starts one command
	return <-l.err
}

// settle waits until no thread of ours is in the group.
func (g *Group) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l == nil {
		return
	}
	if g.l.cmd != nil {
		close(g.l.cmd)
		g.l.cmd = nil
	}
	<-g.l.left
}

func (g *Group) newLauncher() *launcher {
	_, _ = os.FindProcess(os.Getpid()) // makes package os try pidfds now, not in the group
	l := &launcher{cmd: make(chan *exec.Cmd), err: make(chan error, 1), left: make(chan struct{})}
	prev := g.l
	go l.run(l.cmd, g, prev)
	return l
}

func (l *launcher) run(cmds <-chan *exec.Cmd, g *Group, prev *launcher) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go l.run(cmds, g, prev) // on another thread, while this goroutine holds the main thread
		<-l.left
		runtime.UnlockOSThread()
		return
	}
	defer close(l.left)
	if prev != nil {
		<-prev.left
	}
	// "0" is the calling thread. For any other value the kernel takes a lock that waits for an RCU grace period, some
	// 10 ms (cgroup_procs_write_start in kernel/cgroup/cgroup.c, since 5.4).
	const tid = "0"
	var err error
	for _, f := range g.joinFiles("tasks") {
		if err = write(f, tid); err != nil {
			err = fmt.Errorf("join cgroup: %w", err)
			break
		}
	}
	if cmd, ok := <-cmds; ok {
		if err == nil {
			err = cmd.Start()
		}
		l.err <- err
	}
	home := true
	for _, f := range g.session.homeFiles() {
		if err := write(f, tid); err != nil {
			home = false
		}
	}
	g.session.noteOurTasks()
	if home {
		runtime.UnlockOSThread() // else the thread ends with this goroutine
	}
}

// cloneArgs is struct clone_args of linux/sched.h up to version 2.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// tryClone3 calls clone3 with CLONE_INTO_CGROUP and an impossible descriptor. A kernel that knows the flag returns
// EINVAL before it makes a process (copy_clone_args_from_user in kernel/fork.c), an older one E2BIG.
func tryClone3() error {
	args := cloneArgs{flags: unix.CLONE_INTO_CGROUP, exitSignal: uint64(syscall.SIGCHLD), cgroup: math.MaxUint32}
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	switch {
	case errno == unix.EINVAL:
		return nil
	case errno != 0:
		return errno
	case pid == 0: // the child, of a kernel that ignores the descriptor: none is known
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	var ws syscall.WaitStatus
	_, _ = syscall.Wait4(int(pid), &ws, 0, nil)
	return unix.ENOSYS
}

// Nested is a cgroup2 below a group's.
type Nested struct {
	group *Group
	path  string
	id    uint64
}

// Nest makes a cgroup below the group's. The error wraps procs.ErrNotSupported
// without cgroup2.
func (g *Group) Nest(name string) (*Nested, error) {
	if !g.dirs[0].v2 {
		return nil, fmt.Errorf("the session is on no cgroup2 hierarchy: %w", procs.ErrNotSupported)
	}
	n := &Nested{group: g, path: filepath.Join(g.dirs[0].path, name)}
	if err := makeDir(n.path); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(n.path, &st); err != nil {
		return nil, errors.Join(err, n.Remove())
	}
	n.id = st.Ino
	return n, nil
}

// ID is the cgroup2 id as BPF programs see it. It is never used again.
func (n *Nested) ID() uint64 { return n.id }

// Adopt moves the process of pidfd, whose id here is pid, into n. The error wraps procs.ErrNotMember if it is not of
// the group or ends meanwhile. Another process that gets its id is left alone.
func (n *Nested) Adopt(pid, pidfd int) error {
	return n.group.move([]dir{{path: n.path, v2: true}}, pid, pidfd)
}

// Move moves a process to another group of the session, as [Nested.Adopt] does.
func (g *Group) Move(to *Group, pid, pidfd int) error { return g.move(to.dirs, pid, pidfd) }

func (g *Group) move(to []dir, pid, pidfd int) error {
	if procs.Ended(pidfd) || !slices.Contains(g.list(), pid) || procs.Ended(pidfd) {
		return fmt.Errorf("process %d: %w", pid, procs.ErrNotMember)
	}
	for _, d := range to {
		if err := write(filepath.Join(d.path, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d: %w", pid, err)
		}
	}
	if !procs.Ended(pidfd) {
		return nil
	}
	// The id may be another process's by now: if that was moved, move it to our own cgroups. Dead processes are not
	// listed.
	if slices.Contains(pids(to), pid) {
		homes := g.session.homeFiles()
		if to[0].v2 {
			homes = append(homes, filepath.Join(g.session.host.v2.own, "cgroup.procs"))
		}
		for _, file := range homes {
			_ = write(filepath.Join(filepath.Dir(file), "cgroup.procs"), strconv.Itoa(pid))
		}
	}
	return fmt.Errorf("process %d: %w", pid, procs.ErrNotMember)
}

// Remove removes n, which fails while processes are in it.
func (n *Nested) Remove() error {
	if err := unix.Rmdir(n.path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove nested group: %w", &os.PathError{Op: "rmdir", Path: n.path, Err: err})
	}
	return nil
}

// plusEach adds to sum the value of key in a file of each cgroup from path down; nil if no file has it.
func plusEach(sum *int64, path, file, key string) *int64 {
	for _, at := range nested(path) {
		if n, ok := keyed(filepath.Join(at, file), key); ok {
			sum = plus(sum, n)
		}
	}
	return sum
}

// left waits until a launcher that has finished is out of the group.
func (g *Group) left() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l != nil && g.l.cmd == nil {
		<-g.l.left
	}
}

// ioStat sums the lines ("8:0 rbytes=4096 wbytes=0 ...") of io.stat. It returns nil if there is none: the kernel
// accounted no device.
func ioStat(path string) (read, written *int64) {
	b, err := procs.ReadFile(path)
	if err != nil {
		return nil, nil
	}
	for f := range strings.FieldsSeq(string(b)) {
		k, v, _ := strings.Cut(f, "=")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "rbytes":
			read = plus(read, n)
		case "wbytes":
			written = plus(written, n)
		}
	}
	return read, written
}

// blkio sums the Read and Write lines ("8:0 Read 4096") of a v1 file, as ioStat does.
func blkio(path string) (read, written *int64) {
	b, err := procs.ReadFile(path)
	if err != nil {
		return nil, nil
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseInt(f[2], 10, 64)
		switch f[1] {
		case "Read":
			read = plus(read, n)
		case "Write":
			written = plus(written, n)
		}
	}
	return read, written
}

func ptr(n int64, ok bool) *int64 {
	if !ok {
		return nil
	}
	return &n
}

func times(usec int64, ok bool) *int64 { return ptr(usec*1000, ok) }

func plus(p *int64, n int64) *int64 {
	if p != nil {
		n += *p
	}
	return &n
}
