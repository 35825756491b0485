package archive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// Output is the place of a file that is written whole or not at all. Its directory is opened once, so
// moving or replacing the directory meanwhile does not change where the file goes.
//
// A process that is root does not follow a symbolic link that somebody else could
// have made, and takes over no file that is not its own. Close gives up the directory.
type Output struct {
	root    *os.Root
	path    string // for messages
	base    string
	replace bool
	unrun   fs.FileInfo // the only file to replace, without replace; nil: none
}

// ErrOutputExists is returned by [OpenOutput], wrapped with the path, when a file of that name exists
// and may not be replaced.
var ErrOutputExists = errors.New("the file exists")

// probeBytes is what a directory must have room for before a run begins.
const probeBytes = 64 << 10

// OpenOutput opens the place of a file and makes sure that it can be written: its directory exists,
// has space, and has no entry of that name except, with replace, a regular file. It creates nothing.
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

// OpenOutputAgain is [OpenOutput] for a run whose output may hold the bundle of a
// run that never ran its command, as a run leaves that was refused: such a bundle is
// replaced, and the result says so.
func OpenOutputAgain(ctx context.Context, path string) (o *Output, again bool, err error) {
	info, _ := os.Lstat(path)
	o, err = OpenOutput(path, false)
	if !errors.Is(err, ErrOutputExists) || info == nil || !unrun(ctx, path, info) {
		return o, false, err
	}
	if o, err = OpenOutput(path, true); err != nil {
		return nil, false, err
	}
	o.replace, o.unrun = false, info
	return o, true, nil
}

// maxUnrun is how large the bundle of a run that ran no command may be: a file that is
// larger is not read to find out.
const maxUnrun = 8 << 20

// unrun reports whether a file is the bundle of a run whose command was not run.
func unrun(ctx context.Context, path string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() || info.Size() > maxUnrun {
		return false
	}
	bundle, err := Open(path)
	if err != nil {
		return false
	}
	docs, err := bundle.Documents(ctx, schema.SurfacePath)
	return err == nil && docs.Result.Outcome == schema.OutcomeInfraError && docs.Result.Timings.ChildNS == nil
}

// Follow returns the target of a symbolic link that this user owns, and any other path unchanged: for
// a file that is written through such a link instead of replacing it.
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

// vacant says why the name cannot be taken.
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
	case !o.replace && !(o.unrun != nil && os.SameFile(info, o.unrun)):
		return fmt.Errorf("output %s: %w", o.path, ErrOutputExists)
	}
	return nil
}

// probe makes a file with room for some bytes and removes it.
func (o *Output) probe() error {
	name := ".assay-run-" + rand.Text()
	f, err := o.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		if err = allocate(f, probeBytes); err != nil && !isFull(err) { // not every file system can
			_, err = f.Write(make([]byte, probeBytes))
		}
		err = errors.Join(err, f.Close(), o.root.Remove(name))
	}
	if err != nil {
		return fmt.Errorf("output %s cannot be written: %w", o.path, err)
	}
	return nil
}

// temp opens and locks <output>.tmp. One that a killed seal left is taken over;
// one that is being written, or that somebody else made, is an error.
func (o *Output) temp() (*os.File, error) {
	name := o.base + ".tmp"
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

// commit gives what temp opened the output's name, on disk.
func (o *Output) commit(f *os.File) error {
	if err := o.vacant(); err != nil {
		return err
	}
	if err := errors.Join(giveBack(f), f.Sync()); err != nil {
		return err
	}
	if err := o.take(o.base + ".tmp"); err != nil {
		return err
	}
	// In a directory that others can write to, somebody may have been quicker.
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

// take gives a file the output's name.
func (o *Output) take(name string) error {
	if o.replace {
		return o.root.Rename(name, o.base)
	}
	if o.unrun != nil {
		if err := o.root.Remove(o.base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// A link fails where a rename would replace what came meanwhile.
	switch err := o.root.Link(name, o.base); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("output %s: %w", o.path, ErrOutputExists)
	case err != nil: // a file system without links
		return o.root.Rename(name, o.base)
	}
	return o.root.Remove(name)
}

// discard removes what temp made.
func (o *Output) discard() { _ = o.root.Remove(o.base + ".tmp") }

// WriteFile writes a document to the output, for everybody to read.
func (o *Output) WriteFile(data []byte) (err error) {
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
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return o.commit(f)
}

// giveBack makes a file of root's that of the user who called sudo.
func giveBack(f *os.File) error {
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

// openRegular opens a file for reading without waiting for a pipe's other end,
// and refuses what is not a regular file.
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
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func isNotEmpty(err error) bool { return errors.Is(err, syscall.ENOTEMPTY) }

// syncDir puts a directory's entries on disk.
func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncOpenDir(d), d.Close())
}

// isOld reports whether a file was not touched for a minute.
func isOld(info os.FileInfo) bool { return time.Since(info.ModTime()) > time.Minute }

// isLocked reports whether a process that lives holds the file.
func isLocked(name string) bool {
	f, err := openRegular(name, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	return heldByOther(f)
}
