//go:build linux || darwin

package contract

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/assay-run/assay-run/schema"
)

// rewrite makes a new file of e and gives it e's name.
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

// release takes from a path what keeps everybody from changing it, unless it was
// so at the start.
func (r *restorer) release(p string, before bool) {
	if !before && r.isFixed(p) {
		r.report(p, schema.ChangeImmutable, r.unfix(p))
	}
}

// remove removes whatever is at p, directories that were made inaccessible
// included.
func (r *restorer) remove(p string) error {
	err := r.root.RemoveAll(p)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	r.open700(p)
	return r.root.RemoveAll(p)
}

// open700 makes a tree of directories accessible, and what is in it removable, as
// far as it can.
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

// removeAdded removes the covered paths that the snapshot does not have.
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
