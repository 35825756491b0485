package dirs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

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
