package shim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// place makes private and temporary directories, and puts back what stays
// writable, outer trees before inner ones.
func (s *shim) place(m *Mounts, kept map[string]int) error {
	for _, dir := range m.Private {
		if err := s.do(Files, "cover "+dir, func() error { return tmpfs(dir, "mode=0755,size=1m", 0) }); err != nil {
			return err
		}
	}
	for _, dir := range m.Temporary {
		err := s.do(Files, "mount "+dir, func() error {
			if slices.ContainsFunc(m.Temporary, func(t string) bool { return strings.HasPrefix(dir, t+"/") }) {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			return tmpfs(dir, "mode=1777", 0)
		})
		if err != nil {
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
