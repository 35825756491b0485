package sandbox

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// homeLayer is the open layer of a private home.
type homeLayer struct {
	dir  string
	kept bool
	lock *os.File // locked while the layer is open
}

// upper is where the layer's content is.
func (l *homeLayer) upper() string { return filepath.Join(l.dir, shim.LayerDirs[0]) }

// has reports whether an earlier run copied, replaced or removed a path of the home, or a directory above it.
func (l *homeLayer) has(path, home string) bool {
	rel, _ := filepath.Rel(home, path)
	at := l.upper()
	for name := range strings.SplitSeq(rel, "/") {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if err != nil {
			return false
		}
		opaque := func(attr string) bool {
			n, err := unix.Lgetxattr(at, attr, make([]byte, 1))
			return err == nil && n > 0
		}
		if !info.IsDir() || opaque("trusted.overlay.opaque") || opaque("user.overlay.opaque") {
			return true
		}
	}
	return true
}

// openHome makes the layer of the profile's private home. If that is impossible, the home is real, or the error is a
// *HomeError if the profile needs a private one.
func (s *Sandbox) openHome(opt Options) error {
	h := s.profile.Home
	if h == nil || h.State != sandboxfile.HomePrivate {
		return nil
	}
	home := *h // other sandboxes may have the same profile
	s.profile.Home = &home
	var failed []error
	try := func(l *homeLayer, err error) bool {
		if err == nil {
			if err = s.profile.tryLayer(l.dir); err == nil {
				s.layer = l
				return true
			}
			err = errors.Join(err, l.close())
		}
		failed = append(failed, err)
		return false
	}
	if h.Layer != "" {
		if at, err := filepath.Abs(h.Layer); err == nil && (schema.Below(at, s.profile.Dir) || s.profile.writable(at)) {
			return &HomeError{fmt.Sprintf("the command can write to %s, where the layer would be", at)}
		}
		if !try(keptLayer(h.Layer, h.Path)) {
			return &HomeError{errors.Join(failed...).Error()}
		}
	} else if !slices.ContainsFunc(s.profile.layerDirs(opt.Layers, h.Path), func(dir string) bool {
		return try(newLayer(dir, h.Path, opt.Inherit))
	}) {
		why := cmp.Or(errors.Join(failed...), errors.New("no directory outside of the home can be written")).Error()
		if h.needed {
			return &HomeError{why}
		}
		s.profile.realHome(why)
		return nil
	}
	if h.login != nil { // the real one is not older than that of a layer that was kept
		state := *h.Login
		s.profile.Home.Login = &state
		if err := h.login.forget(s.layer.upper()); err != nil {
			return errors.Join(&HomeError{err.Error()}, s.closeHome())
		}
	}
	s.profile.layer = s.layer.dir
	s.profile.DenyWrite = slices.DeleteFunc(slices.Clone(s.profile.DenyWrite), func(w Path) bool {
		return w.Rule == ruleHomeLimit && s.layer.has(w.Path, h.Path)
	})
	s.profile.DenyRead = append(slices.Clone(s.profile.DenyRead), Path{s.layer.dir, ruleEvidence})
	return s.profile.settle()
}

// forget removes a login from a layer. The command of an earlier run may have put anything there.
func (l *login) forget(upper string) error {
	root, err := os.OpenRoot(upper)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove(l.inside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the login of an earlier run: %w", err)
	}
	return nil
}

// keepLogin writes to the real home what the command renewed of a login.
func (h *Home) keepLogin(upper string) {
	after, err := h.login.written(upper)
	if err == nil && after == nil {
		return
	}
	renewed, lost := h.login.before, ""
	if err == nil {
		renewed, lost, err = renewLogin(h.login.before, after)
	}
	switch {
	case err != nil:
	case !bytes.Equal(renewed, h.login.before):
		err = h.login.replace(h.Login.Path, renewed)
	case lost == "":
		return
	default:
		err = errors.New(lost)
	}
	h.Login.State, h.Login.Reason = schema.LoginRenewed, lost
	if err != nil {
		h.Login.State, h.Login.Reason = schema.LoginNotKept, err.Error()
	}
}

// written returns the login in a layer; nil: the command did not write it.
func (l *login) written(upper string) ([]byte, error) {
	root, err := os.OpenRoot(upper)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(l.inside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxLogin {
		return nil, fmt.Errorf("the command left no file with a login in its place")
	}
	return root.ReadFile(l.inside)
}

// replace replaces the login in the real home, if nobody else has. The new file has no name until it is whole. Only a
// kill between its naming and its renaming leaves it, under a name that the next replacement removes.
func (l *login) replace(path string, with []byte) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	at, name := int(dir.Fd()), filepath.Base(path)
	if err := unix.Flock(at, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another run renews it: %w", err)
	}
	now, err := config.ReadFile(path, maxLogin)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, l.before) {
		return errors.New("the file was changed outside of the run in the meantime")
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	whole := "." + name + ".assay-run"
	if err := unix.Unlinkat(at, whole, 0); err != nil && err != unix.ENOENT {
		return err
	}
	fd, err := unix.Openat(at, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	named := err == unix.EOPNOTSUPP || err == unix.EISDIR // the file system has no files without names
	if named {
		fd, err = unix.Openat(at, whole, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), whole)
	defer f.Close()
	_, err = f.Write(with)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Chown(int(owner.Uid), int(owner.Gid)), f.Sync())
	if err == nil && !named {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), at, whole, unix.AT_SYMLINK_FOLLOW)
	}
	if err == nil {
		err = unix.Renameat(at, whole, at, name)
	}
	if err != nil {
		_ = unix.Unlinkat(at, whole, 0)
	}
	return err
}

// closeHome notes what the command wrote to its home, and removes the layer. It is called when no process of the
// command is left.
func (s *Sandbox) closeHome() error {
	if s.layer == nil {
		return nil
	}
	h := s.profile.Home
	if h.login != nil {
		h.keepLogin(s.layer.upper())
	}
	h.Written, h.Beyond = contentOf(s.layer.upper())
	err := s.layer.close()
	s.layer = nil
	return err
}

// layerDirs are directories for layers: given, and what any host has, on a disk first. A layer in the home itself is
// impossible, and one that the command can move is not the run's.
func (p *Profile) layerDirs(given []string, home string) []string {
	var dirs []string
	if kept, err := rundir.Kept(); err == nil {
		given = append(slices.Clone(given), kept)
	}
	for _, dir := range append(slices.Clone(given), os.TempDir(), "/dev/shm") {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil && !schema.Below(real, home) && !p.writable(real) && !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(inMemory(a), inMemory(b)) })
	return dirs
}

// inMemory is 1 for a directory on a tmpfs, otherwise 0.
func inMemory(dir string) int {
	var at unix.Statfs_t
	if unix.Statfs(dir, &at) == nil && at.Type == unix.TMPFS_MAGIC {
		return 1
	}
	return 0
}

// newLayer makes a layer below dir that is removed when it is closed, or by whoever inherits it.
func newLayer(dir, home string, inherit func(string)) (*homeLayer, error) {
	sweepLayers(dir)
	at, err := os.MkdirTemp(dir, layerPrefix)
	if err != nil {
		return nil, err
	}
	l := &homeLayer{dir: filepath.Join(at, layerName)}
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return nil, errors.Join(err, l.close())
	}
	if inherit != nil {
		inherit(l.dir) // its heir also removes the directory above
	}
	if err := l.prepare(home); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// A layer that is not kept is layerName in a directory of its own, whose name begins with layerPrefix.
const layerPrefix, layerName = "assay-run-home-", "layer"

// sweepLayers removes the layers below dir that dead processes of this user left.
func sweepLayers(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, layerPrefix+"*"))
	for _, at := range left {
		info, err := os.Lstat(at)
		if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(at, layerName, lockName), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) && time.Since(info.ModTime()) > time.Minute {
			_ = cgroup.RemoveTree(at) // its removal was interrupted, or it was never begun
		}
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = cgroup.RemoveTree(at) // what is left of it is for the next run
		}
		lock.Close()
	}
}

// keptLayer opens the layer in dir, which it makes if need be.
func keptLayer(dir, home string) (*homeLayer, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	if schema.Below(dir, home) {
		return nil, fmt.Errorf("%s is in the home %s itself", dir, home)
	}
	if err := usableAsLayer(dir); err != nil {
		return nil, err
	}
	l := &homeLayer{dir: dir, kept: true}
	if err := l.prepare(home); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// lockName is the file in a layer that a run locks.
const lockName = "lock"

// usableAsLayer refuses a directory that others can reach, or that contains something else.
func usableAsLayer(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockName && !slices.Contains(shim.LayerDirs, e.Name()) {
			return fmt.Errorf("%s contains %s, so it is not the layer of a home; name an empty directory", dir,
				e.Name())
		}
		if e.Name() != lockName && !e.IsDir() {
			return fmt.Errorf("%s in %s is not a directory; name an empty directory", e.Name(), dir)
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s belongs to another user", dir)
	}
	return os.Chmod(dir, 0o700)
}

// prepare locks the layer and makes its directories. The first one gets the owner and mode of the home.
func (l *homeLayer) prepare(home string) error {
	at := filepath.Join(l.dir, lockName)
	opened := at
	if !l.kept {
		opened += ".new" // sweepLayers must never see it unlocked
	}
	var err error
	if l.lock, err = os.OpenFile(opened, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another run uses the layer %s: %w", l.dir, err)
	}
	if err := os.Rename(opened, at); err != nil {
		return err
	}
	for _, name := range shim.LayerDirs {
		if err := os.Mkdir(filepath.Join(l.dir, name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	info, err := os.Stat(home)
	if err != nil {
		return err
	}
	if at := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
		if err := os.Chown(l.upper(), int(at.Uid), int(at.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(l.upper(), info.Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetgid))
}

// close unlocks the layer, and removes it if it is not kept.
func (l *homeLayer) close() error {
	var err error
	if !l.kept {
		err = cgroup.RemoveTree(filepath.Dir(l.dir))
	}
	if l.lock != nil {
		l.lock.Close()
	}
	return err
}

// tryLayer makes the file system of a layer over the home: only the kernel knows which file systems it takes.
func (p *Profile) tryLayer(layer string) error {
	if mayAdminister() && makeOverlay(p.Home.Path, layer) == nil {
		return nil
	}
	return p.mountLayer(layer)
}

// makeOverlay makes the file system, and mounts it nowhere. It fails for names that would need escapes, and where it
// needs a user namespace.
func makeOverlay(home, layer string) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{{"lowerdir", home}, {"upperdir", filepath.Join(layer, shim.LayerDirs[0])},
		{"workdir", filepath.Join(layer, shim.LayerDirs[1])}, {"index", "off"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return err
		}
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return err
	}
	return unix.FsconfigCreate(fs)
}

// mountLayer mounts the layer in a process that starts nothing.
func (p *Profile) mountLayer(layer string) error {
	trial := &Profile{Mode: sandboxfile.Observe, PIDs: true, OnUnavailable: sandboxfile.Fail, Dir: "/", open: true,
		Network: NetProfile{Mode: sandboxfile.NetHost},
		only:    []shim.Place{{Path: p.Home.Path, As: shim.Layered, From: layer}}}
	_ = trial.settle() // it has no rules
	s, err := New(trial, Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	s.probe = true
	cmd, err := s.Start(&exec.Cmd{Path: "/proc/self/exe", Dir: "/"}, (*exec.Cmd).Start, false)
	if cmd != nil {
		_ = cmd.Wait()
	}
	var missing *LayerError
	if errors.As(err, &missing) {
		return fmt.Errorf("a layer in %s: %s", layer, missing.Reason)
	}
	return err
}

// contentOf lists what a layer contains; beyond also counts directories that cannot be read. list is never nil.
func contentOf(upper string) (list []schema.HomeWritten, beyond int64) {
	list = []schema.HomeWritten{}
	_ = filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || len(list) >= maxWritten:
			beyond++
			return nil
		case path == upper:
			return nil
		}
		rel, _ := filepath.Rel(upper, path)
		w := schema.HomeWritten{Path: rel, Kind: "other"}
		info, err := d.Info()
		if err != nil {
			beyond++
			return nil
		}
		switch at := info.Sys().(*syscall.Stat_t); {
		case d.IsDir():
			w.Kind = "directory"
		case d.Type().IsRegular():
			w.Kind, w.Bytes = "file", info.Size()
		case d.Type()&fs.ModeSymlink != 0:
			w.Kind = "link"
		case d.Type()&fs.ModeCharDevice != 0 && at.Rdev == 0: // a whiteout of overlayfs
			w.Kind = "removed"
		}
		list = append(list, w)
		return nil
	})
	return list, beyond
}
