package shim

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

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
