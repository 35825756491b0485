package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a command inside the group: it is a member before its first
// instruction. Everything in cmd means what it means to exec.Cmd.Start, and
// the errors are the same; cmd.Wait is the caller's. Only, in mode None, the
// command gets a session of its own unless cmd.SysProcAttr asks for Setsid or
// Setpgid itself.
func (g *Group) Start(cmd *exec.Cmd) error {
	return g.startBy(cmd, (*exec.Cmd).Start, g.launch)
}

// spawner forks and executes a command.
type spawner func(*exec.Cmd) error

// startBy starts a command that spawn forks, or launch where the v1 directories
// are to be joined before the fork.
func (g *Group) startBy(cmd *exec.Cmd, spawn, launch spawner) error {
	if cmd.Process != nil {
		return errors.New("exec: already started")
	}
	if g.tree != nil {
		return g.tree.start(cmd, spawn)
	}
	start := func() error { return g.startIn(cmd, spawn, launch) }
	if r := g.session.reaper; r != nil {
		return r.start(cmd, start)
	}
	return start()
}

// startIn is startBy in a cgroup.
func (g *Group) startIn(cmd *exec.Cmd, spawn, launch spawner) error {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	before := cmd.SysProcAttr
	defer func() { cmd.SysProcAttr = before }()
	cmd.SysProcAttr = &attr

	s := g.session
	if g.dirs[0].v2 && s.host.clone == nil {
		fd, err := unix.Open(g.dirs[0].path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("start in cgroup: %w", &os.PathError{Op: "open", Path: g.dirs[0].path, Err: err})
		}
		defer unix.Close(fd)
		attr.UseCgroupFD, attr.CgroupFD = true, fd
		if len(g.dirs) == 1 {
			return spawn(cmd)
		}
		if !s.viaShim {
			return launch(cmd)
		}
		return g.startShim(cmd, g.joinFiles("tasks"), spawn)
	}
	files := g.joinFiles("tasks")
	if g.dirs[0].v2 {
		files = append(files, filepath.Join(g.dirs[0].path, "cgroup.procs"))
	} else if !s.viaShim {
		return launch(cmd) // legacy
	}
	return g.startShim(cmd, files, spawn)
}

// launcher is an OS thread of ours that has joined a group's v1 directories,
// so that what it clones is born there. v1 attaches single threads. It is never
// the main thread, by whose cgroups /proc tells those of the process.
type launcher struct {
	cmd  chan *exec.Cmd
	err  chan error
	left chan struct{} // closed when the thread is out of the group again
}

// warm readies the launcher while the runner does other things.
func (g *Group) warm() {
	if g.session.viaShim || g.session.host.mode == None || len(g.joinFiles("tasks")) == 0 ||
		g.session.host.mode == Hybrid && g.session.host.clone != nil {
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
	l.cmd = nil // it starts one
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
		go l.run(cmds, g, prev) // on another, as this goroutine keeps the main thread
		<-l.left
		runtime.UnlockOSThread()
		return
	}
	defer close(l.left)
	if prev != nil {
		<-prev.left
	}
	// "0" is the calling thread, and the one form for which the kernel does
	// without a lock that waits for an RCU grace period, some 10 ms (since 5.4,
	// cgroup_procs_write_start in kernel/cgroup/cgroup.c).
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

// homeFiles are the v1 files that a thread leaves the session by.
func (s *Session) homeFiles() []string {
	var files []string
	for _, h := range s.host.v1 {
		for _, d := range s.dirs {
			if !d.v2 && d.path == filepath.Join(h.own, parentName, s.runID) {
				files = append(files, filepath.Join(h.own, "tasks"))
			}
		}
	}
	return files
}
