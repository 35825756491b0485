package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
)

// Errors of Open and Of, for what cannot be watched.
var (
	ErrNotCgroup2 = errors.New("it is not a cgroup2 directory")
	ErrRoot       = errors.New("it is the root cgroup, which holds the whole host")
	ErrOurs       = errors.New("assay-run itself is in it, and would record itself")
)

// Tree is a cgroup2 directory and all below it.
type Tree struct {
	Path string
	// Made is true if Make made it, so that nothing had run in it.
	Made bool

	events *os.File // cgroup.events of Path
	made   []string // directories of ours, the outermost first
	note   Note
	forget func() // ends the note; nil if there is none
}

// Of is the path of the cgroup2 directory that a process is in. The error is
// os.ErrNotExist once the process has ended, and ErrNotCgroup2 where it is in none that
// can be seen.
func Of(pid int) (string, error) {
	dir, ok := dirs.Of(pid)
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return "", fmt.Errorf("process %d: %w", pid, err)
	}
	if strings.HasSuffix(dir, " (deleted)") { // cgroups(7): it has ended, and nobody has reaped it
		return "", fmt.Errorf("process %d in %s: %w", pid, dir, os.ErrNotExist)
	}
	if !ok {
		return "", fmt.Errorf("the cgroup of process %d: %w", pid, ErrNotCgroup2)
	}
	return dir, nil
}

// Locate is the directory of a path in the cgroup2 hierarchy, as in
// /proc/PID/cgroup. It may not exist.
func Locate(path string) (string, error) {
	dir, ok := dirs.At(path)
	if !ok {
		return "", fmt.Errorf("cgroup %s: %w", path, ErrNotCgroup2)
	}
	return dir, nil
}

// Open opens an existing directory. The error may be one of this package's, wrapped
// with the path, or of the system.
func Open(path string) (_ *Tree, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("open cgroup %s: %w", path, ErrNotCgroup2)
	}
	if own, ok := dirs.Of(os.Getpid()); ok &&
		(own == path || strings.HasPrefix(own, strings.TrimSuffix(path, "/")+"/")) {
		if _, err := os.Stat(filepath.Join(path, "cgroup.events")); err == nil {
			return nil, fmt.Errorf("open cgroup %s: %w", path, ErrOurs)
		}
	}
	t := &Tree{Path: path}
	t.events, err = os.Open(filepath.Join(path, "cgroup.events"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("open cgroup %s: %w", path, ErrRoot)
	case err != nil:
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	return t, nil
}

// Note keeps the paths of directories, the outermost first, where a later run finds and
// removes them if this process is killed. The function that it returns ends that.
type Note func(dirs []string) (forget func())

// Make opens a directory, which it makes where there is none, with those above it. In a
// cgroup that is delegated to a user, the new directory is delegated to that user too.
// Close removes what Make made and nobody uses. Make calls note, which may be nil, before it
// makes anything.
func Make(path string, note Note) (_ *Tree, err error) {
	var made []string
	var forget func()
	defer func() {
		if err != nil {
			remove(made, forget)
		}
	}()
	var missing []string
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == "/" {
			break
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	if note != nil && len(missing) > 0 {
		forget = note(missing)
	}
	for _, dir := range missing {
		switch err := os.Mkdir(dir, 0o755); {
		case err == nil:
			made = append(made, dir)
			if err := delegate(dir); err != nil {
				return nil, fmt.Errorf("delegate cgroup: %w", err)
			}
		case !errors.Is(err, os.ErrExist):
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	t, err := Open(path)
	if err != nil {
		return nil, err
	}
	t.made, t.note, t.forget = made, note, forget
	t.Made = len(made) > 0 && made[len(made)-1] == filepath.Clean(path)
	return t, nil
}

// delegate gives a new directory the owner of the one that it is in, and the files that
// "Delegation containment" in cgroups(7) names.
func delegate(dir string) error {
	var above unix.Stat_t
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil || above.Uid == uint32(os.Getuid()) {
		return err
	}
	for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		if err := os.Lchown(filepath.Join(dir, name), int(above.Uid), int(above.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// Again makes the directory once more if it was removed since Make made it, and reports whether it did.
func (t *Tree) Again() bool {
	if !t.Made || t.Current() {
		return false
	}
	again, err := Make(t.Path, t.note)
	if err != nil {
		return false
	}
	t.events.Close()
	if t.forget != nil {
		t.forget()
	}
	*t = *again
	return true
}

// Directories are those that Make made, the innermost first: what to remove when this
// process cannot.
func (t *Tree) Directories() (list []string) {
	for i := len(t.made) - 1; i >= 0; i-- {
		list = append(list, t.made[i])
	}
	return list
}

// Populated reports whether there is a process in the tree. The error is os.ErrNotExist
// once the directory has been removed.
func (t *Tree) Populated() (bool, error) {
	buf := make([]byte, 256)
	n, err := t.events.ReadAt(buf, 0)
	if errors.Is(err, unix.ENODEV) {
		return false, fmt.Errorf("cgroup %s: %w", t.Path, os.ErrNotExist)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return strings.Contains(string(buf[:n]), "populated 1"), nil
}

// look is how often Wait checks for changes that poll does not report.
const look = 250 * time.Millisecond

// Wait waits until the tree has had a process and has none any more. began reports whether there were processes that
// ended before Wait could see them. The error is os.ErrNotExist if the directory was removed, or that of ctx.
func (t *Tree) Wait(ctx context.Context, began func() bool) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { w.Close() })
	defer func() {
		if stop() {
			w.Close()
		}
	}()
	for had := false; ; {
		had = had || began() // before the next check, because a process may come at any moment
		// poll reports changes since this read.
		now, err := t.Populated()
		if err != nil || !now && had {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		had = had || now
		fds := []unix.PollFd{{Fd: int32(t.events.Fd()), Events: unix.POLLPRI}, {Fd: int32(r.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(look/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Current reports whether Path still is the directory that was opened.
func (t *Tree) Current() bool {
	var now, opened unix.Stat_t
	return unix.Stat(filepath.Join(t.Path, "cgroup.events"), &now) == nil &&
		unix.Fstat(int(t.events.Fd()), &opened) == nil && now.Ino == opened.Ino
}

// Close removes what Make made, if nothing is in it.
func (t *Tree) Close() error {
	err := t.events.Close()
	remove(t.made, t.forget)
	return err
}

// remove removes directories, those first that were made last, and ends their note. What is
// in use stays.
func remove(made []string, forget func()) {
	for _, dir := range slices.Backward(made) {
		_ = os.Remove(dir)
	}
	if forget != nil {
		forget()
	}
}
