package dirs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

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

// fork forks a command from a thread that is in the v1 directories meanwhile.
func (g *Group) fork(cmd *exec.Cmd, by procs.Starter) error {
	if by.Thread == nil {
		return g.launch(cmd)
	}
	defer g.session.noteOurTasks()
	return by.Thread(cmd, g.joinFiles("tasks"), g.session.homeFiles())
}

// join starts a command by way of a program that joins the group by files.
func (g *Group) join(cmd *exec.Cmd, files []string, by procs.Starter) error {
	defer g.session.noteOurTasks()
	return by.Join(cmd, files)
}
