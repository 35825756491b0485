//go:build linux || darwin

package contract

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// maxReported limits the changes that are listed individually.
const maxReported = 1000

// restoration is what a restoration found and did.
type restoration struct {
	// Changes are sorted by path, at most 1000; changes that could not be undone are kept first. Unlisted counts the
	// others.
	Changes  []schema.ProtectedChange
	Unlisted int
	// Failed counts the changes that could not be undone.
	Failed int

	during, check string
}

// forget drops the changes that could not be undone earlier either.
func (r *restoration) forget(earlier []restoration) {
	r.Changes = slices.DeleteFunc(r.Changes, func(c schema.ProtectedChange) bool {
		known := !c.Restored && slices.ContainsFunc(earlier, func(e restoration) bool {
			return slices.ContainsFunc(e.Changes, func(old schema.ProtectedChange) bool {
				return !old.Restored && old.Path == c.Path && old.Change == c.Change
			})
		})
		if known {
			r.Failed--
		}
		return known
	})
}

// reasons are what a reader of the verdict should know about the changes.
func (r restoration) reasons() (reasons []string) {
	add := func(n int, format string, args ...any) {
		if n > 0 {
			reasons = append(reasons, fmt.Sprintf(format, args...))
		}
	}
	add(r.Unlisted, "%s changed too, but there are too many to list", protectedPaths(r.Unlisted))
	immutable, names := 0, []string{}
	for _, c := range r.Changes {
		if c.Change == schema.ChangeImmutable {
			immutable++
		}
		if c.Verdict() != "" {
			names = append(names, fmt.Sprintf("%s (%s)", c.Path, c.Change))
		}
	}
	named := strings.Join(names[:min(len(names), maxNamed)], ", ")
	switch r.during {
	case schema.DuringAgent:
		undone := len(r.Changes) + r.Unlisted - r.Failed
		add(undone, "%s changed during the run and restored before checking", protectedPaths(undone))
		add(
			immutable, "%s made immutable by the command: that fails the contract, whatever the checks say",
			protectedPaths(immutable),
		)
	case schema.DuringCheck:
		add(
			len(names), "%s changed while check %s ran, so the check proves nothing: %s", protectedPaths(len(names)),
			r.check,
			named,
		)
	}
	add(r.Failed, "%s changed and could not be restored, so the checks prove nothing", protectedPaths(r.Failed))
	return reasons
}

// maxNamed limits the paths that one reason names.
const maxNamed = 5

// restorer is one pass over a snapshot.
type restorer struct {
	*snapshot
	during  string
	check   string
	changes []schema.ProtectedChange
	modes   map[string]stat // original modes of directories
}

func (r *restorer) report(p, change string, err error) {
	c := schema.ProtectedChange{Path: r.name(p), Change: change, During: r.during, Check: r.check, Restored: err == nil}
	if err != nil {
		c.Error = err.Error()
	}
	r.changes = append(r.changes, c)
}

func (r *restorer) result() restoration {
	out := restoration{during: r.during, check: r.check}
	slices.SortFunc(r.changes, func(a, b schema.ProtectedChange) int { // the limit cuts off what matters least
		return cmp.Or(strings.Compare(b.Verdict(), a.Verdict()), strings.Compare(a.Path, b.Path))
	})
	for _, c := range r.changes {
		if !c.Restored {
			out.Failed++
		}
	}
	listed := r.changes[:min(len(r.changes), maxReported)]
	out.Unlisted = len(r.changes) - len(listed)
	out.Changes = slices.SortedFunc(
		slices.Values(listed), func(a, b schema.ProtectedChange) int { return strings.Compare(a.Path, b.Path) },
	)
	return out
}

// directory makes e a directory again that can be written to. Its permissions are restored at the end.
func (r *restorer) directory(e *entry) {
	info, err := r.root.Lstat(e.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err := r.root.Mkdir(e.path, 0o700)
		if err == nil {
			err = r.permissions(e)
		}
		if !e.parent || err != nil {
			r.report(e.path, "deleted", err)
		}
	case err != nil:
		r.report(e.path, "deleted", err)
	case !info.IsDir():
		err := r.root.RemoveAll(e.path)
		if err == nil {
			err = r.root.Mkdir(e.path, 0o700)
		}
		if err == nil {
			err = r.permissions(e)
		}
		r.report(e.path, "replaced", err)
	default:
		r.modes[e.path] = statOf(info)
		if info.Mode()&0o700 != 0o700 {
			err = r.root.Chmod(e.path, info.Mode()&modeBits|0o700)
		}
		if err != nil {
			r.report(e.path, "permissions", err)
		}
	}
}

// finishDirectory restores a directory's permissions.
func (r *restorer) finishDirectory(e *entry) {
	was, found := r.modes[e.path]
	if !found {
		r.permissions(e) // it was created again, and is reported
		return
	}
	if !was.samePermissions(e.stat) && !e.parent {
		r.report(e.path, "permissions", r.permissions(e))
		return
	}
	if was.mode&0o700 != 0o700 {
		r.permissions(e)
	}
}

// permissions restores the owner and mode of e's path, which must not be a symbolic link.
func (r *restorer) permissions(e *entry) error {
	info, err := r.root.Lstat(e.path)
	if err != nil {
		return err
	}
	if now := statOf(info); now.uid != e.uid || now.gid != e.gid {
		if err := r.root.Lchown(e.path, e.uid, e.gid); err != nil {
			return err
		}
	}
	return r.root.Chmod(e.path, e.mode&modeBits) // after chown, which clears setuid
}

func (r *restorer) link(e *entry) {
	change := ""
	info, err := r.root.Lstat(e.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		change = "deleted"
	case err != nil:
		r.report(e.path, "deleted", err)
		return
	case info.Mode().Type() != fs.ModeSymlink:
		change = "replaced"
	default:
		if target, err := r.root.Readlink(e.path); err == nil && target == e.target {
			return
		}
		change = "modified"
	}
	err = r.remove(e.path)
	if err == nil {
		err = r.root.Symlink(e.target, e.path)
	}
	r.report(e.path, change, err)
}

func (r *restorer) file(e *entry) {
	info, err := r.root.Lstat(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		r.report(e.path, "deleted", r.rewrite(e))
		return
	}
	if err != nil {
		r.report(e.path, "deleted", err)
		return
	}
	now := statOf(info)
	other := now.dev != e.dev || now.ino != e.ino
	switch {
	case !info.Mode().IsRegular():
		err := r.remove(e.path)
		if err == nil {
			err = r.rewrite(e)
		}
		r.report(e.path, "replaced", err)
	case now.links > 1 && (other || now.links > e.links):
		// The file has another name: leave it alone and make a new one.
		r.report(e.path, "linked", r.rewrite(e))
	case now.size != e.size || !r.unchanged(e, now):
		r.report(e.path, "modified", r.rewrite(e))
	case !now.samePermissions(e.stat):
		r.report(e.path, "permissions", r.permissions(e))
	}
}

// unchanged reports whether the content is the original. A file that cannot be read because of its mode is made
// readable; its permissions are restored with its content.
func (r *restorer) unchanged(e *entry, now stat) bool {
	f, err := r.open(e.path)
	if errors.Is(err, fs.ErrPermission) && r.root.Chmod(e.path, now.mode&modeBits|0o400) == nil {
		f, err = r.open(e.path)
	}
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, e.size+1)); err != nil {
		return false
	}
	return bytes.Equal(sum.Sum(nil), e.sum[:])
}

// rewrite makes a new file for e and gives it e's name.
func (r *restorer) rewrite(e *entry) (err error) {
	temp := &entry{path: path.Join(path.Dir(e.path), ".assay-restore-"+rand.Text()), stat: e.stat}
	f, err := r.root.OpenFile(temp.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			r.root.Remove(temp.path)
		}
	}()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), io.NewSectionReader(r.blob, e.offset, e.size)); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), e.sum[:]) {
		return errors.New("the snapshot itself was tampered with")
	}
	if err := r.permissions(temp); err != nil {
		return err
	}
	if err := r.root.Chtimes(temp.path, e.mtime, e.mtime); err != nil {
		return err
	}
	return r.root.Rename(temp.path, e.path)
}

// release removes flags from a path that prevent all changes, unless it had them at the start.
func (r *restorer) release(p string, before bool) {
	if !before && r.isFixed(p) {
		r.report(p, schema.ChangeImmutable, r.unfix(p))
	}
}

// remove removes whatever is at p, including inaccessible directories.
func (r *restorer) remove(p string) error {
	err := r.root.RemoveAll(p)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	r.open700(p)
	return r.root.RemoveAll(p)
}

// open700 makes a tree of directories accessible and removable, as far as possible.
func (r *restorer) open700(p string) {
	r.release(p, false)
	info, err := r.root.Lstat(p)
	if err != nil || !info.IsDir() {
		return
	}
	r.root.Chmod(p, 0o700)
	f, err := r.root.Open(p)
	if err != nil {
		return
	}
	names, _ := f.Readdirnames(-1)
	f.Close()
	for _, name := range names {
		r.open700(path.Join(p, name))
	}
}

// removeAdded removes covered paths that the snapshot lacks.
func (r *restorer) removeAdded() {
	err := r.walk(".", false, func(p string, covered bool, _ fs.FileInfo) (bool, error) {
		if e := r.index[p]; !covered || e != nil && !e.parent {
			return true, nil
		}
		r.report(p, "added", r.remove(p))
		return false, nil
	})
	if we := (*walkError)(nil); errors.As(err, &we) {
		r.report(we.path, "permissions", fmt.Errorf("cannot look for added paths: %w", we.err))
	}
}
