package archive

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Output is the destination of a file that is written as a whole or not at all. Its directory is opened once, so that
// the file goes there even if the directory is renamed or replaced meanwhile. The file has no name until it is whole,
// so a process that is killed leaves nothing. Where the file system has no files without names, it is <output>.tmp
// until then, and the next process that writes to the output uses it again.
//
// If the process is root, it does not follow a symbolic link that another user could have made, and does not use a
// temporary file that is not its own.
type Output struct {
	root    *os.Root
	path    string // for messages
	base    string
	replace bool
	earlier fs.FileInfo // a file that may be replaced even without replace; nil for none
	named   string      // the name of the file that is written; empty while it has none
}

// ErrOutputExists is returned by [OpenOutput], wrapped with the path, if the file exists and may not be replaced.
var ErrOutputExists = errors.New("the file exists")

// probeBytes is the space that a directory must have before a run begins.
const probeBytes = 64 << 10

// OpenOutput opens the destination of a file and checks that it can be written: the directory exists and has space, and
// there is no such file, or only a regular one if replace is true. It leaves no file.
func OpenOutput(path string, replace bool) (_ *Output, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	root, err := openPlace(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", path, err)
	}
	o := &Output{root: root, path: path, base: filepath.Base(path), replace: replace}
	if err = o.vacant(); err == nil {
		err = o.probe()
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return o, nil
}

// OpenOutputAgain is [OpenOutput] without replace, except that it replaces a bundle. If another file has the name when
// the output is written, that file stays. again reports whether there is a bundle now.
func OpenOutputAgain(path string) (o *Output, again bool, err error) {
	info, _ := os.Lstat(path)
	o, err = OpenOutput(path, false)
	if !errors.Is(err, ErrOutputExists) || info == nil || !info.Mode().IsRegular() {
		return o, false, err
	}
	if _, other := Open(path); other != nil {
		return o, false, err
	}
	if o, err = OpenOutput(path, true); err != nil {
		return nil, false, err
	}
	o.replace, o.earlier = false, info
	return o, true, nil
}

// Follow returns the target of a symbolic link that this user owns, so that writing does not replace the link. Any
// other path is returned unchanged.
func Follow(path string) string {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSymlink || !onlyOurs(info) {
		return path
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	return path
}

// Close closes the directory.
func (o *Output) Close() error { return o.root.Close() }

// vacant returns an error if the file may not be written because of what has its name now.
func (o *Output) vacant() error {
	info, err := o.root.Lstat(o.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("output %s: %w", o.path, err)
	}
	if info.Mode().Type() == fs.ModeSymlink && os.Geteuid() != 0 {
		if to, err := os.Stat(o.path); err == nil {
			info = to
		}
	}
	switch {
	case info.Mode().Type() == fs.ModeSymlink && os.Geteuid() == 0:
		return fmt.Errorf("output %s is a symbolic link, which root does not follow", o.path)
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("output %s exists and is not a regular file", o.path)
	case !o.replace && !(o.earlier != nil && os.SameFile(info, o.earlier)):
		return fmt.Errorf("output %s: %w", o.path, ErrOutputExists)
	}
	return nil
}

// probe creates a file of probeBytes and removes it.
func (o *Output) probe() error {
	f, err := createNameless(o.root)
	if err == nil {
		if err = allocate(f, probeBytes); err != nil && !isFull(err) { // not every file system supports it
			_, err = f.Write(make([]byte, probeBytes))
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("output %s cannot be written: %w", o.path, err)
	}
	return nil
}

// temp opens the file that commit gives the output's name.
func (o *Output) temp() (*os.File, error) {
	o.named = "" // the output may be written again
	f, err := openNameless(o.root)
	if errors.Is(err, errors.ErrUnsupported) {
		o.named = o.base + ".tmp"
		return o.tempNamed()
	}
	return f, err
}

// tempNamed opens and locks <output>.tmp. It reuses a file that a killed process left. It is an error if another
// process is writing the file, or another user made it.
func (o *Output) tempNamed() (*os.File, error) {
	name := o.named
	if info, err := o.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s.tmp exists and is not a regular file", o.path)
	}
	f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	a, err := f.Stat()
	if err == nil && !onlyOurs(a) {
		err = fmt.Errorf("%s.tmp was made by somebody else", o.path)
	}
	b, berr := o.root.Lstat(name)
	if lerr := flock(f); err == nil && (errors.Is(lerr, errLocked) || berr != nil || !os.SameFile(a, b)) {
		err = fmt.Errorf("%s.tmp is being written by another seal", o.path)
	}
	if err == nil {
		err = errors.Join(f.Truncate(0), f.Chmod(0o600))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// commit syncs the file that temp opened and renames it to the output's name.
func (o *Output) commit(f *os.File) error {
	if err := o.vacant(); err != nil {
		return err
	}
	if err := errors.Join(chownToSudoUser(f), f.Sync()); err != nil {
		return err
	}
	if err := o.rename(f); err != nil {
		return err
	}
	// If others can write to the directory, somebody may have replaced the file.
	made, err := f.Stat()
	if err != nil {
		return err
	}
	if there, err := o.root.Lstat(o.base); err != nil || !os.SameFile(there, made) {
		return fmt.Errorf("another process removed or replaced output %s while it was written", o.path)
	}
	dir, err := o.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return syncOpenDir(dir)
}

// rename gives the file the output's name.
func (o *Output) rename(f *os.File) error {
	if o.replace {
		if o.named == "" { // a link cannot replace a file
			name := ".assay-run-" + rand.Text()
			if err := linkNameless(f, o.root, name); err != nil {
				return err
			}
			o.named = name
		}
		return o.root.Rename(o.named, o.base)
	}
	if o.earlier != nil {
		if err := o.root.Remove(o.base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Unlike a rename, a link does not replace a file that was made meanwhile.
	link := func() error { return o.root.Link(o.named, o.base) }
	if o.named == "" {
		link = func() error { return linkNameless(f, o.root, o.base) }
	}
	switch err := link(); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("output %s: %w", o.path, ErrOutputExists)
	case o.named == "":
		return err
	case err != nil: // the file system has no hard links
		return o.root.Rename(o.named, o.base)
	}
	return o.root.Remove(o.named)
}

// discard removes the file that temp opened.
func (o *Output) discard() {
	if o.named != "" {
		_ = o.root.Remove(o.named)
	}
}

// WriteFile writes data to the output, with mode 0644.
func (o *Output) WriteFile(data []byte) error {
	return o.Write(func(w io.Writer) error { _, err := w.Write(data); return err })
}

// Write is WriteFile for what write writes.
func (o *Output) Write(write func(io.Writer) error) (err error) {
	f, err := o.temp()
	if err != nil {
		return err
	}
	defer f.Close()
	defer func() {
		if err != nil {
			o.discard()
		}
	}()
	b := bufio.NewWriterSize(f, 64<<10)
	if err := write(b); err != nil {
		return err
	}
	if err := errors.Join(b.Flush(), f.Chmod(0o644)); err != nil {
		return err
	}
	return o.commit(f)
}

// Replace writes the file at path, whole or not at all, with mode 0644. It may replace a file, and follows a symbolic
// link that this user made.
func Replace(path string, write func(io.Writer) error) error {
	out, err := OpenOutput(Follow(path), true)
	if err != nil {
		return err
	}
	defer out.Close()
	return out.Write(write)
}

// chownToSudoUser gives a file of root to the user who called sudo, if there is one.
func chownToSudoUser(f *os.File) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil || uid < 0 || os.Geteuid() != 0 {
		return nil
	}
	gid, err := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil || gid < 0 {
		gid = -1
	}
	return f.Chown(uid, gid)
}

// openRegular opens a regular file. It refuses anything else, and does not wait for the other end of a pipe.
func openRegular(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|noFollow|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.Is(err, syscall.EFBIG) // the caller's hard limit of file sizes
}

func isNotEmpty(err error) bool { return errors.Is(err, syscall.ENOTEMPTY) }

// syncDir writes a directory's entries to disk.
func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncOpenDir(d), d.Close())
}

// isOld reports whether a file was not changed for a minute.
func isOld(info os.FileInfo) bool { return time.Since(info.ModTime()) > time.Minute }

// isLocked reports whether a process holds the file's lock.
func isLocked(name string) bool {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	return heldByOther(f)
}
