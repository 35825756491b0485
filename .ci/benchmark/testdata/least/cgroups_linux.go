package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// groups are the cgroups of a run: on each hierarchy that the product uses, below the one
// that this process is in.
type groups struct {
	base []string // where this process is: the hierarchy of processes first
	made []string
	run  string // the session's on the first
}

const root = "/sys/fs/cgroup"

var (
	above  = "/least-" + strconv.Itoa(os.Getpid())
	agents = above + "/run/agent"
)

func find() (g groups) {
	read("/proc/self/mountinfo") // to know what is where, which is as ever here
	var legacy []string
	for line := range strings.Lines(string(read("/proc/self/cgroup"))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch parts[1] {
		case "":
			dir := root
			if unix.Access(root+"/unified", unix.F_OK) == nil {
				dir += "/unified"
			}
			g.base = []string{dir + strings.TrimRight(parts[2], "/")}
		case "memory", "pids", "blkio":
			legacy = append(legacy, root+"/"+parts[1]+strings.TrimRight(parts[2], "/"))
		}
	}
	g.base = append(g.base, legacy...)
	return g
}

func (g *groups) make() {
	for i, base := range g.base {
		dirs := []string{above, above + "/run", agents}
		if i == 0 {
			dirs = append(dirs, above+"/run/containers")
			g.run = base + above + "/run"
		}
		for _, d := range dirs {
			call("mkdir cgroup", unix.SYS_MKDIRAT, here, text(base+d), 0o755)
			g.made = append(g.made, base+d)
		}
	}
}

func (g *groups) remove() {
	for i := len(g.made) - 1; i >= 0; i-- {
		call("rmdir cgroup", unix.SYS_UNLINKAT, here, text(g.made[i]), unix.AT_REMOVEDIR)
	}
}

// start clones a process into a cgroup of the first hierarchy, and into the agent's of the
// others: there the kernel puts a child where the thread is that it comes from.
func (g *groups) start(kind, dir string, agent bool, argv []string, files ...uintptr) (pid int) {
	fd := open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if agent {
		g.move(agents)
	}
	pid = spawn(kind, argv, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}, files)
	if agent {
		g.move("")
	}
	call("close", unix.SYS_CLOSE, uintptr(fd))
	return pid
}

func (g *groups) move(to string) {
	for _, base := range g.base[1:] {
		fd := open(base+to+"/tasks", unix.O_WRONLY)
		call("move thread (v1)", unix.SYS_WRITE, uintptr(fd), text("0"), 1)
		call("close", unix.SYS_CLOSE, uintptr(fd))
	}
}

func open(path string, flags int) int {
	return call("open", unix.SYS_OPENAT, here, text(path), uintptr(flags|unix.O_CLOEXEC), 0o600)
}

func read(path string) []byte {
	b := make([]byte, 64<<10)
	fd := open(path, unix.O_RDONLY)
	n := call("read /proc", unix.SYS_READ, uintptr(fd), at(&b[0]), uintptr(len(b)))
	call("close", unix.SYS_CLOSE, uintptr(fd))
	return bytes.Clone(b[:n])
}
