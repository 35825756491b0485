package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks limits the symbolic links in a path, as the kernel does.
const maxLinks = 40

// openPlace opens a directory to write to. If this process is root, it walks there step by step, and follows only links
// that no other user can have made. Others may still be able to write to the directory itself. So the caller must use
// the descriptor, and follow no links in the directory.
func openPlace(path string) (*os.Root, error) {
	if os.Geteuid() != 0 {
		return os.OpenRoot(path)
	}
	fd, err := walk(path, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
}

// MakePlace makes a directory for an output, with those above it that do not exist, as openPlace walks.
func MakePlace(path string) error {
	if os.Geteuid() != 0 {
		return os.MkdirAll(path, 0o777)
	}
	fd, err := walk(path, true)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// openNameless makes a file without a name in a directory. The error is [errors.ErrUnsupported] if the file system has
// no such files, or nothing could give it a name, since /proc is missing.
func openNameless(root *os.Root) (*os.File, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	switch err {
	case nil:
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOENT: // ENOENT: kernels that do not know the flag
		return nil, errors.ErrUnsupported
	default:
		return nil, &os.PathError{Op: "open", Path: root.Name(), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(root.Name(), "#"+strconv.Itoa(fd)))
	if _, err := os.Lstat(procFD(f)); err != nil {
		f.Close()
		return nil, errors.ErrUnsupported
	}
	return f, nil
}

// linkNameless gives a file of openNameless a name in the directory. It never replaces a file.
func linkNameless(f *os.File, root *os.Root, name string) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	err = unix.Linkat(unix.AT_FDCWD, procFD(f), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: f.Name(), New: filepath.Join(root.Name(), name), Err: err}
	}
	return nil
}

func procFD(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// walk returns an O_PATH descriptor of a directory. With missing, it makes what does not exist.
func walk(path string, missing bool) (_ int, err error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(at)
		}
	}()
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		var st unix.Stat_t
		err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT && missing {
			if err = unix.Mkdirat(at, name, 0o777); err == nil || err == unix.EEXIST {
				err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
			}
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		next := "."
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			next = name
		} else {
			if links++; links > maxLinks {
				return -1, &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
			}
			if st.Uid != 0 || open(at) {
				return -1, fmt.Errorf("%s in the path %s is a symbolic link that another user could have made, and "+
					"assay-run runs as root: name the directory that it leads to", name, path)
			}
			target, err := readlinkat(at, name)
			if err != nil {
				return -1, &os.PathError{Op: "readlink", Path: path, Err: err}
			}
			if rest = append(strings.Split(target, "/"), rest...); strings.HasPrefix(target, "/") {
				next = "/"
			}
		}
		fd, err := unix.Openat(at, next, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		unix.Close(at)
		at = fd
	}
	return at, nil
}

// CheckSpoolParent returns an error if dir should not become the default spool directory, because others can replace it
// or have made it.
func CheckSpoolParent(dir string) error {
	if err := checkSpoolDir(filepath.Dir(dir)); err != nil {
		return err
	}
	switch info, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%s is not a directory of this user", dir)
	}
	return nil
}

// checkSpoolDir returns an error if this process is root and any user can replace files in the directory. The files of
// a spool are opened by path.
func checkSpoolDir(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	fd, err := walk(path, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if open(fd) {
		return fmt.Errorf("any user can replace files in %s, and assay-run runs as root: "+
			"chmod o-w or chmod +t the directory, or choose another", path)
	}
	return nil
}

// open reports whether any user can replace files in a directory.
func open(fd int) bool {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return err != nil || st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0
}

func readlinkat(at int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, name, buf)
	return string(buf[:max(n, 0)]), err
}
