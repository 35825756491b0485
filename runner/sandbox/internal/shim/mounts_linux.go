package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maskDir holds, on the tmpfs that is /dev, what covers hidden files while the
// mounts are made. It is gone when the command starts.
const maskDir = "/dev/.assay-run"

// devices are those that every program may use; /dev/pts is a new instance, in
// which no terminal of anybody else exists.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// procReadOnly are the parts of /proc that are the machine's, not a process's.
var procReadOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "tty", "driver"}

// mounts arranges the mount namespace, in place: every path keeps its name, and
// nothing is ever created but on file systems made here. Trees that stay
// writable are cloned before everything becomes read-only, and put back after.
func (s *shim) mounts() error {
	m := s.plan.Mounts
	if m == nil {
		return nil
	}
	if err := s.do(Files, "look at the paths", m.absolute); err != nil {
		return err
	}
	var kept map[string]int // descriptors of detached mounts, by path
	for _, step := range []func() error{
		func() error {
			return s.do(Files, "make / private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") })
		},
		func() (err error) { kept, err = s.clones(m); return err },
		func() error { return s.readOnlyRoot(m) },
		func() error { return s.devices(m) },
		func() error { return s.proc(m) },
		func() error { return s.place(m, kept) },
		func() error { return s.carve(m, kept) },
		func() error { return s.finishDevices(m) },
		func() error { return s.do(Files, "chdir", s.chdir) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// absolute refuses paths that would be taken from wherever we happen to be.
func (m *Mounts) absolute() error {
	lists := [][]string{m.Writable, m.Pinned, m.ReadOnly, m.Hidden, m.Sockets, m.Private, m.Temporary}
	for _, shown := range m.Shown {
		lists = append(lists, []string{shown.Path})
	}
	for _, path := range slices.Concat(lists...) {
		if !filepath.IsAbs(path) {
			return &os.PathError{Op: "mount", Path: path, Err: unix.EINVAL}
		}
	}
	return nil
}

// chdir leaves the directory that we were started in for what is there now.
func (s *shim) chdir() error {
	if s.plan.Dir == "" {
		return nil
	}
	return unix.Chdir(s.plan.Dir)
}

// clone opens a detached copy of the mount at path, and of all below it.
func clone(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return fd, nil
}

// attach puts a detached mount at path, and closes it.
func attach(fd int, path string) error {
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: path, Err: err}
	}
	return nil
}

func setReadOnly(fd int, path string, flags uint) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(fd, path, flags, &attr); err != nil {
		return &os.PathError{Op: "mount_setattr", Path: path, Err: err}
	}
	return nil
}

// bind puts a copy of what is at from over to.
func bind(from, to string, readOnly bool) error {
	fd, err := clone(from)
	if err != nil {
		return err
	}
	if readOnly {
		if err := setReadOnly(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE); err != nil {
			unix.Close(fd)
			return err
		}
	}
	return attach(fd, to)
}

func tmpfs(path, options string, flags uintptr) error {
	err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options)
	if err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: path, Err: err}
	}
	return nil
}

// clones opens what will be wanted once it is covered or read-only.
func (s *shim) clones(m *Mounts) (map[string]int, error) {
	fds := map[string]int{}
	paths := append([]Shown{}, m.Shown...)
	for _, p := range m.Writable {
		paths = append(paths, Shown{p, true})
	}
	for _, p := range paths {
		err := s.do(Files, "keep "+p.Path, func() error {
			fd, err := clone(p.Path)
			if err == nil && !p.Writable {
				err = setReadOnly(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
			}
			if err == nil {
				fds[p.Path] = fd
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return fds, nil
}

func (s *shim) readOnlyRoot(m *Mounts) error {
	if m.All {
		return nil
	}
	return s.do(Files, "make / read-only", func() error {
		return setReadOnly(unix.AT_FDCWD, "/", unix.AT_RECURSIVE)
	})
}

// devices replaces /dev. The mask is made there too, since /dev is always ours.
func (s *shim) devices(m *Mounts) error {
	if !m.Devices {
		return nil
	}
	return s.do(Files, "mount /dev", func() error {
		fds := map[string]int{}
		for _, name := range devices {
			fd, err := clone("/dev/" + name)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil {
				return err
			}
			fds[name] = fd
		}
		if fd, err := cloneTerminal(); err != nil {
			return err
		} else if fd >= 0 {
			fds["console"] = fd
		}
		if err := tmpfs("/dev", "mode=0755,size=64k", unix.MS_NOEXEC); err != nil {
			return err
		}
		for name, fd := range fds {
			if err := touch("/dev/"+name, 0o644); err != nil {
				return err
			}
			if err := attach(fd, "/dev/"+name); err != nil {
				return err
			}
		}
		for _, link := range [][2]string{
			{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
			{"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
		} {
			if err := os.Symlink(link[0], "/dev/"+link[1]); err != nil {
				return err
			}
		}
		for _, dir := range []string{"/dev/pts", "/dev/shm", maskDir} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
			return fmt.Errorf("mount devpts: %w", err)
		}
		if err := tmpfs("/dev/shm", "mode=1777", 0); err != nil {
			return err
		}
		return errors.Join(os.Mkdir(maskDir+"/dir", 0), touch(maskDir+"/file", 0))
	})
}

// cloneTerminal opens a detached copy of the terminal that a stream is, or
// returns -1: ttyname(3) looks in /dev for it, as /dev/pts is a new one.
func cloneTerminal() (int, error) {
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err != nil || !strings.HasPrefix(path, "/dev/") {
				continue
			}
			if fd, err := clone(path); !errors.Is(err, unix.ENOENT) {
				return fd, err
			}
		}
	}
	return -1, nil
}

func touch(path string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// finishDevices takes away what only making the mounts needed: the masks, and the
// right to write to /dev, and to /dev/shm where the profile gives none. What is
// shown below that has been put there by now.
func (s *shim) finishDevices(m *Mounts) error {
	if !m.Devices {
		return nil
	}
	return s.do(Files, "make /dev read-only", func() error {
		var shm error
		if !m.Shm {
			shm = setReadOnly(unix.AT_FDCWD, "/dev/shm", 0)
		}
		return errors.Join(shm, os.RemoveAll(maskDir), setReadOnly(unix.AT_FDCWD, "/dev", 0))
	})
}

func (s *shim) proc(m *Mounts) error {
	if !m.Proc {
		return nil
	}
	err := s.do(Files, "mount /proc", func() error {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return &os.PathError{Op: "mount proc", Path: "/proc", Err: err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.do(Files, "make /proc/sys read-only", func() error {
		for _, name := range procReadOnly {
			path := "/proc/" + name
			if err := bind(path, path, true); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		return nil
	})
}

// place makes private and temporary directories, and puts back what stays
// writable, outer trees before inner ones.
func (s *shim) place(m *Mounts, kept map[string]int) error {
	for _, dir := range m.Private {
		if err := s.do(Files, "cover "+dir, func() error { return tmpfs(dir, "mode=0755,size=1m", 0) }); err != nil {
			return err
		}
	}
	for _, dir := range m.Temporary {
		if err := s.do(Files, "mount "+dir, func() error { return tmpfs(dir, "mode=1777", 0) }); err != nil {
			return err
		}
	}
	for _, p := range m.Writable {
		if err := s.do(Files, "make writable "+p, func() error { return put(kept, p, m) }); err != nil {
			return err
		}
	}
	return nil
}

// carve makes the exceptions: what cannot be renamed, is read-only, hidden, and
// shown again.
func (s *shim) carve(m *Mounts, kept map[string]int) error {
	for _, p := range m.Pinned {
		if err := s.do(Files, "pin "+p, func() error { return bind(p, p, false) }); err != nil {
			return err
		}
	}
	for _, p := range m.ReadOnly {
		if err := s.do(Files, "protect "+p, func() error { return bind(p, p, true) }); err != nil {
			return err
		}
	}
	for _, p := range m.Hidden {
		if err := s.do(Files, "hide "+p, func() error { return hide(p, m) }); err != nil {
			return err
		}
	}
	for _, p := range m.Sockets {
		err := s.do(Files, "hide "+p, func() error {
			if err := hide(p, m); !errors.Is(err, unix.ENOENT) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, p := range m.Shown {
		if err := s.do(Files, "show "+p.Path, func() error { return put(kept, p.Path, m) }); err != nil {
			return err
		}
	}
	for _, p := range append(append([]string{}, m.Private...), hiddenAround(m)...) {
		err := s.do(Files, "close "+p, func() error {
			if !slices.Contains(m.Private, p) {
				if err := os.Chmod(p, 0o111); err != nil { // to be passed through, not to be listed
					return err
				}
			}
			return setReadOnly(unix.AT_FDCWD, p, 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hide covers what is at path. A directory that something below is to be shown
// of gets a file system of its own to hang it into.
func hide(path string, m *Mounts) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return bind(maskDir+"/file", path, true)
	}
	for _, around := range hiddenAround(m) {
		if around == path {
			return tmpfs(path, "mode=0755,size=1m", 0)
		}
	}
	return bind(maskDir+"/dir", path, true)
}

// hiddenAround are the hidden directories that have something shown below them.
func hiddenAround(m *Mounts) []string {
	var dirs []string
	for _, h := range m.Hidden {
		for _, p := range m.Shown {
			if strings.HasPrefix(p.Path, h+"/") {
				dirs = append(dirs, h)
				break
			}
		}
	}
	return dirs
}

// put hangs what was kept of path where it was.
func put(kept map[string]int, path string, m *Mounts) error {
	fd, ok := kept[path]
	if !ok {
		return unix.ENOENT // keeping it failed, and has been told
	}
	if err := foothold(fd, path, m); err != nil {
		return err
	}
	return attach(fd, path)
}

// foothold makes the file or directory that fd is to be put on, where path is
// below a file system that was made here.
func foothold(fd int, path string, m *Mounts) error {
	ours := append(append(hiddenAround(m), m.Private...), m.Temporary...)
	if m.Devices {
		ours = append(ours, "/dev")
	}
	if !slices.ContainsFunc(ours, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	parent := filepath.Dir(path)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if err := touch(path, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
