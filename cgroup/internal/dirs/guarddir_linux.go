package dirs

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

// guardSuffix follows the run id in the name of a guard's directory. No run id
// has a dot.
const guardSuffix = ".guard"

// GuardDir is a cgroup for the guard beside its session. It is needed where the
// session is not below the runner's own cgroup: who kills all of that, as
// systemd does to end a unit, would kill the runner and the guard, and leave
// the session alive. The zero value is for a guard that stays with the runner.
type GuardDir struct {
	Path  string
	Homes []string // where the guard goes to leave it: the first that takes it
	Lock  *os.File // keeps sweepers off; the guard has it too
}

// GuardDir makes the directory, if the session's guard needs one.
func (s *Session) GuardDir() (GuardDir, error) {
	if !s.dirs[0].v2 {
		return GuardDir{}, nil
	}
	l, parent := s.host.v2, filepath.Dir(s.dirs[0].path)
	base, path := filepath.Dir(parent), s.dirs[0].path+guardSuffix
	if s.dirs[0].slice { // at the top, where only directories of systemd's should be
		base, parent = l.mount, filepath.Join(l.mount, parentName)
		path = filepath.Join(parent, s.runID+guardSuffix)
	}
	if base == l.own || filepath.Join(base, runnerLeaf) == l.own {
		return GuardDir{}, nil
	}
	fd, err := place{h: l, base: base}.open(parent)
	if err != nil {
		return GuardDir{}, err
	}
	defer unix.Close(fd)
	if err := makeDir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return GuardDir{}, err
	}
	lock, err := lockDir(path)
	if err != nil {
		return GuardDir{}, fmt.Errorf("lock cgroup %s: %w", path, err)
	}
	return GuardDir{Path: path, Homes: []string{l.own, l.mount}, Lock: os.NewFile(uintptr(lock), path)}, nil
}

// Start starts the guard with fork: in its directory from the first instruction
// where the host can do that, which takes no time, or moved, which can take it 20 ms.
func (d GuardDir) Start(cmd *exec.Cmd, fork func(*exec.Cmd) error) error {
	if d.Path == "" {
		return fork(cmd)
	}
	if cloneIntoCgroup() == nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.Lock.Fd())
		return fork(cmd)
	}
	if err := fork(cmd); err != nil {
		return err
	}
	return write(filepath.Join(d.Path, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid))
}

// Leave moves the caller, which is the guard, out again and removes the directory.
// The runner's cgroup may be gone with its unit by then, and the root take only
// root's processes: then the next sweep removes what is an empty directory.
func (d GuardDir) Leave() {
	for _, home := range d.Homes {
		if write(filepath.Join(home, "cgroup.procs"), "0") == nil {
			break
		}
	}
	d.Remove()
}

// Remove removes the directory once the guard is not there any more.
func (d GuardDir) Remove() {
	if d.Path != "" {
		_ = unix.Rmdir(d.Path)
		_ = unix.Rmdir(filepath.Dir(d.Path)) // fails while another session is there
	}
	if d.Lock != nil {
		d.Lock.Close()
	}
}
