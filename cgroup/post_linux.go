package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// postSuffix follows the run id in the name of a post. No run id has a dot.
const postSuffix = ".guard"

// post is a cgroup for the guard beside its session. It is needed where the
// session is not below the runner's own cgroup: who kills all of that, as
// systemd does to end a unit, would kill the runner and the guard, and leave
// the session alive. The zero value is for a guard that stays with the runner.
type post struct {
	path  string
	homes []string // where the guard goes to leave it: the first that takes it
	lock  *os.File // keeps sweepers off; the guard has it too
}

func (s *Session) post() (post, error) {
	if len(s.dirs) == 0 || !s.dirs[0].v2 {
		return post{}, nil
	}
	l, parent := s.host.v2, filepath.Dir(s.dirs[0].path)
	base := filepath.Dir(parent)
	if base == l.own || filepath.Join(base, runnerLeaf) == l.own {
		return post{}, nil
	}
	fd, err := place{h: l, base: base}.open(parent)
	if err != nil {
		return post{}, err
	}
	defer unix.Close(fd)
	path := s.dirs[0].path + postSuffix
	if err := unix.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return post{}, &os.PathError{Op: "create cgroup", Path: path, Err: err}
	}
	lock, err := lockDir(path)
	if err != nil {
		return post{}, fmt.Errorf("lock cgroup %s: %w", path, err)
	}
	return post{path: path, homes: []string{l.own, l.mount}, lock: os.NewFile(uintptr(lock), path)}, nil
}

// start starts the guard there: in it from the first instruction where the host
// can do that, which takes no time, or moved, which can take it 20 ms.
func (p post) start(cmd *exec.Cmd, clone bool) error {
	if p.path == "" {
		return startNative(cmd)
	}
	if clone {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(p.lock.Fd())
		return startNative(cmd)
	}
	if err := startNative(cmd); err != nil {
		return err
	}
	return write(filepath.Join(p.path, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid))
}

// leave moves the caller, which is the guard, out again and removes the post.
// The runner's cgroup may be gone with its unit by then, and the root take only
// root's processes: then the next sweep removes what is an empty directory.
func (p post) leave() {
	for _, home := range p.homes {
		if write(filepath.Join(home, "cgroup.procs"), "0") == nil {
			break
		}
	}
	p.remove()
}

// remove removes the post once the guard is not there any more.
func (p post) remove() {
	if p.path != "" {
		_ = unix.Rmdir(p.path)
		_ = unix.Rmdir(filepath.Dir(p.path)) // fails while another session is there
	}
	if p.lock != nil {
		p.lock.Close()
	}
}
