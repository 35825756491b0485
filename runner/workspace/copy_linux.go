package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// Copy makes the directory to, with everything below the directory from: contents, modes, owners (as far as
// permitted), times, extended attributes, symbolic and hard links, holes, fifos, sockets and devices. If the file
// system can share contents between files, no content is copied. Absolute paths in skip are left out. A mounted file
// system below from, and a source that changes during the copy, are errors. After an error, the partial copy stays.
func Copy(ctx context.Context, from, to string, skip ...string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	before, err := whole(ctx, from, skip)
	if err != nil {
		return err
	}
	before.settle(ctx)
	c := &copier{from: from, to: to, first: map[uint64]string{}}
	names := slices.Sorted(maps.Keys(before.files))
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	for _, name := range names {
		s := before.files[name]
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.copy(name, &s); err != nil {
			return fmt.Errorf("copy %s: %w", filepath.Join(from, name), err)
		}
	}
	for _, name := range slices.Backward(append([]string{"."}, names...)) { // an entry changes its directory's times
		if s, listed := before.files[name]; !listed || s.mode&unix.S_IFMT == unix.S_IFDIR {
			if err := c.attributes(name); err != nil {
				return fmt.Errorf("copy %s: %w", filepath.Join(from, name), err)
			}
		}
	}
	after, err := whole(ctx, from, skip)
	if err != nil {
		return err
	}
	if name := before.differs(after); name != "" {
		return fmt.Errorf("copy %s: %w", filepath.Join(from, name), errCopying)
	}
	return nil
}

var errCopying = errors.New("it changed while the directory was copied")

// whole is a walk that fails if it has gaps.
func whole(ctx context.Context, dir string, skip []string) (*tree, error) {
	t, err := walk(ctx, dir, skip)
	if err == nil && len(t.gaps) > 0 {
		err = fmt.Errorf("copy %s: %s", filepath.Join(dir, t.gaps[0].Path), t.gaps[0].Reason)
	}
	return t, err
}

// copier is a copy in progress.
type copier struct {
	from, to string
	source   *os.Root
	target   *os.Root
	first    map[uint64]string // the first copy of files with several names, by inode
}

func (c *copier) begin() (err error) {
	if err := os.Mkdir(c.to, 0o700); err != nil {
		return err
	}
	if c.source, err = os.OpenRoot(c.from); err != nil {
		return err
	}
	if c.target, err = os.OpenRoot(c.to); err != nil {
		c.source.Close()
	}
	return err
}

func (c *copier) end() {
	c.source.Close()
	c.target.Close()
}

func (c *copier) copy(name string, s *state) error {
	switch s.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return c.target.Mkdir(name, 0o700)
	case unix.S_IFLNK:
		if err := c.target.Symlink(s.target, name); err != nil {
			return err
		}
		return c.attributes(name)
	}
	if first, ok := c.first[s.ino]; ok {
		return c.target.Link(first, name)
	}
	if s.links > 1 {
		c.first[s.ino] = name
	}
	var err error
	if s.mode&unix.S_IFMT == unix.S_IFREG {
		err = c.file(name, s)
	} else {
		err = unix.Mknod(filepath.Join(c.to, name), s.mode, int(s.rdev))
	}
	return errors.Join(err, c.attributes(name))
}

// file copies a content.
func (c *copier) file(name string, s *state) error {
	in, err := c.source.OpenFile(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := unchanged(in, s); err != nil {
		return err
	}
	out, err := c.target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		err = copyData(in, out, s.size)
	}
	return errors.Join(err, out.Close())
}

// copyData copies everything except holes.
func copyData(in, out *os.File, size int64) error {
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			return out.Truncate(size) // the rest is a hole
		case err != nil: // the file system does not report holes
			from = at
		}
		to, err := unix.Seek(int(in.Fd()), from, unix.SEEK_HOLE)
		if err != nil {
			to = size
		}
		n, err := io.Copy(io.NewOffsetWriter(out, from), io.NewSectionReader(in, from, to-from))
		if err != nil {
			return err
		}
		if n < to-from {
			return errCopying
		}
		at = to
	}
	return out.Truncate(size)
}

// attributes copies everything but the content.
func (c *copier) attributes(name string) error {
	from, to := filepath.Join(c.from, name), filepath.Join(c.to, name)
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	if err := unix.Lchown(to, int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	copyXattrs(from, to)
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil { // after chown, which clears setuid
			return err
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// copyXattrs copies the extended attributes that may be read and set.
func copyXattrs(from, to string) {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(from, names)
	if err != nil || n == 0 {
		return
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if n, err := unix.Lgetxattr(from, name, value); err == nil {
			_ = unix.Lsetxattr(to, name, value[:n], 0)
		}
	}
}

// Remove removes a copy, whatever modes and attributes its files have. File systems mounted below it are detached,
// and their files are not removed.
func Remove(dir string) error {
	if err := detach(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, _ error) error {
		if d == nil || d.Type()&^fs.ModeDir != 0 {
			return nil
		}
		changeable(root, name)
		if d.IsDir() {
			_ = root.Chmod(name, 0o700)
		}
		return nil
	})
	return errors.Join(root.Close(), os.RemoveAll(dir))
}

// detach unmounts what is mounted on a directory or below it, last mounts first.
func detach(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir = filepath.Join(parent, filepath.Base(dir))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) {
		words := strings.Fields(line)
		if len(words) < 5 {
			continue
		}
		at := unescape.Replace(words[4])
		if !schema.Below(at, dir) {
			continue
		}
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &os.PathError{Op: "unmount", Path: at, Err: err}
		}
	}
	return nil
}

// unescape decodes paths in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// keeping are FS_IMMUTABLE_FL and FS_APPEND_FL of linux/fs.h.
const keeping = 0x10 | 0x20

// changeable clears the attributes that keep even root from removing a file.
func changeable(root *os.Root, name string) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && flags&keeping != 0 {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^keeping)
	}
}
