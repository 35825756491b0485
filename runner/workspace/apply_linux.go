package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/gitpatch"
)

// ErrOther is wrapped by the error of [Apply] for a directory that differs from the workspace before the command. The
// error names what differs.
var ErrOther = errors.New("it is not the workspace that the changes were made in")

// Apply makes the changes that doc lists in dir. dir is a copy of the workspace as it was before the command, and
// nobody else may write there. open opens a member of the bundle with contents. If dir differs from that workspace,
// Apply returns [ErrOther] before it changes anything. Paths whose contents are not in the bundle stay unchanged: see
// [NotKept].
func Apply(ctx context.Context, dir string, doc *schema.WorkspaceChanges,
	open func(member string) (io.ReadCloser, error)) error {
	t, err := walk(ctx, dir, nil)
	if err != nil {
		return err
	}
	if len(t.gaps) > 0 {
		return fmt.Errorf("look at %s: %s", path.Join(dir, t.gaps[0].Path), t.gaps[0].Reason)
	}
	a := &applier{tree: t, doc: doc, open: open, opened: map[string]fs.FileMode{}}
	if a.root, err = os.OpenRoot(dir); err != nil {
		return err
	}
	defer a.root.Close()
	if err := a.compare(ctx); err != nil {
		return err
	}
	if err := a.make(ctx); err != nil {
		return fmt.Errorf("make the kept changes: %w", err)
	}
	return nil
}

// NotKept lists changes that are not in the bundle and could matter to those who cannot restore their paths. restored
// may be nil.
func NotKept(doc *schema.WorkspaceChanges, restored func(name string) bool) (list []string) {
	for _, g := range doc.Gaps {
		list = append(list, fmt.Sprintf("%s (%s)", g.Path, g.Reason))
	}
	for i := range doc.Changes {
		c := &doc.Changes[i]
		kind := ""
		if c.After != nil {
			kind = c.After.Kind
		}
		switch {
		case c.NotKept == "", kind == schema.KindOfFifo, kind == schema.KindOfSocket: // these have no content
		case c.NotKept != schema.NotKeptRedacted && restored != nil && restored(c.Name()):
		default:
			list = append(list, fmt.Sprintf("%s (%s)", c.Path, c.NotKept))
		}
	}
	return list
}

// Carry writes a kept artifact below dir, at the path that it had. The directories above it can be entered by all.
func Carry(dir string, artifact schema.WorkspaceChange, open func(member string) (io.ReadCloser, error)) error {
	artifact.SetName(strings.TrimPrefix(artifact.Name(), "/"))
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	a := &applier{root: root, open: open}
	return errors.Join(root.MkdirAll(path.Dir(artifact.Name()), 0o755), a.file(&artifact, nil, true), a.mode(&artifact))
}

// applier applies changes to a directory.
type applier struct {
	*tree
	root   *os.Root
	doc    *schema.WorkspaceChanges
	open   func(string) (io.ReadCloser, error)
	opened map[string]fs.FileMode // original modes of directories that were made writable
}

func otherf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOther, fmt.Sprintf(format, args...))
}

// compare compares the directory with what the document says about the workspace before the command.
func (a *applier) compare(ctx context.Context) error {
	for i := range a.doc.Changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.compareOne(&a.doc.Changes[i]); err != nil {
			return err
		}
	}
	if want := a.doc.WorkspaceDigest; want != "" {
		var failed error
		got := a.digest(func(name string) string {
			_, id, err := a.sums(name)
			if err != nil {
				failed = err
			}
			return id
		})
		if failed != nil {
			return failed
		}
		if got != want {
			return otherf("its digest is %s, and that was %s", got, want)
		}
	}
	return nil
}

// varies reports whether the content of a path may differ between equal workspaces: it is in a tool's cache, or git
// may write it differently.
func varies(name string) bool {
	if schema.InCache(name) {
		return true
	}
	parts := strings.Split(name, "/")
	i := slices.Index(parts, ".git")
	return i >= 0 && i+1 < len(parts) && slices.Contains([]string{"index", "objects", "logs"}, parts[i+1])
}

func (a *applier) compareOne(c *schema.WorkspaceChange) error {
	if c.NotKept == schema.NotKeptRedacted || varies(c.Name()) {
		return nil // the path may be a different one
	}
	s, there := a.files[c.Name()]
	switch was := c.Before; {
	case was == nil && there:
		return otherf("%q is there, and was not", c.Path)
	case was == nil:
		return nil
	case !there:
		return otherf("%q is missing", c.Path)
	case s.kind() != was.Kind:
		return otherf("%q is a %s, and was a %s", c.Path, s.kind(), was.Kind)
	case was.Kind == schema.KindOfLink && s.target != was.LinkTarget():
		return otherf("%q leads to %q, and led to %q", c.Path, s.target, was.Target)
	case was.Kind != schema.KindOfFile:
		return nil
	case s.size != was.Bytes:
		return otherf("%q has %d bytes, and had %d", c.Path, s.size, was.Bytes)
	case was.Digest == nil && was.GitBlob == nil:
		return nil
	default:
		digest, id, err := a.sums(c.Name())
		switch {
		case err != nil:
			return err
		case was.Digest != nil && digest != *was.Digest:
			return otherf("the digest of %q is %s, and was %s", c.Path, digest, *was.Digest)
		case was.GitBlob != nil && id != *was.GitBlob:
			return otherf("git's id of %q is %s, and was %s", c.Path, id, *was.GitBlob)
		}
		return nil
	}
}

// sums returns the digest of a file and git's id of it.
func (a *applier) sums(name string) (digest, id string, err error) {
	f, err := a.root.OpenFile(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	sum, git := sha256.New(), gitpatch.NewID(a.files[name].size)
	if _, err := io.Copy(io.MultiWriter(sum, git), f); err != nil {
		return "", "", fmt.Errorf("read %s: %w", name, err)
	}
	return "sha256:" + hexOf(sum), hexOf(git), nil
}

func hexOf(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }

// make applies the changes: first removals, contents before their directory, then new and changed paths.
func (a *applier) make(ctx context.Context) (err error) {
	defer func() {
		if cerr := a.close(); err == nil {
			err = cerr
		}
	}()
	for i := range slices.Backward(a.doc.Changes) {
		c := &a.doc.Changes[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.Before == nil || c.NotKept != "" || c.After != nil && c.After.Kind == c.Before.Kind {
			continue
		}
		if err := a.remove(c); err != nil {
			return err
		}
	}
	in, err := a.open(schema.PatchPath)
	if err != nil {
		return err
	}
	defer in.Close()
	patch := gitpatch.NewReader(io.LimitReader(in, a.doc.PatchBytes))
	for i := range a.doc.Changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.change(&a.doc.Changes[i], patch); err != nil {
			return fmt.Errorf("%.200q: %w", a.doc.Changes[i].Path, err)
		}
	}
	for i := range slices.Backward(a.doc.Changes) { // restrictive modes of directories come last
		c := &a.doc.Changes[i]
		if c.After != nil && c.After.Kind == schema.KindOfDirectory && c.NotKept == "" {
			delete(a.opened, c.Name())
			if err := a.mode(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes a path that is gone, or has another file type now.
func (a *applier) remove(c *schema.WorkspaceChange) error {
	if err := a.writable(path.Dir(c.Name())); err != nil {
		return err
	}
	if varies(c.Name()) {
		return a.root.RemoveAll(c.Name())
	}
	return a.root.Remove(c.Name())
}

// writable makes a directory writable while changes are applied.
func (a *applier) writable(dir string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	if _, done := a.opened[dir]; done {
		return nil
	}
	info, err := a.root.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode()&0o700 == 0o700 {
		return err
	}
	a.opened[dir] = info.Mode()
	return a.root.Chmod(dir, info.Mode()&modeBits|0o700)
}

// close restores modes. Outer directories come last.
func (a *applier) close() (err error) {
	var dirs []string
	for dir := range a.opened {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range slices.Backward(dirs) {
		if cerr := a.root.Chmod(dir, a.opened[dir]&modeBits); err == nil && !errors.Is(cerr, fs.ErrNotExist) {
			err = cerr
		}
	}
	return err
}

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// change applies one change, except for the mode of a directory.
func (a *applier) change(c *schema.WorkspaceChange, patch *gitpatch.Reader) error {
	content, err := a.section(c, patch)
	if err != nil || c.After == nil {
		return err
	}
	special := c.After.Kind == schema.KindOfFifo || c.After.Kind == schema.KindOfSocket
	if c.NotKept != "" && !(special && c.NotKept == schema.NotKeptSpecial) {
		return nil
	}
	name := c.Name()
	if err := a.writable(path.Dir(name)); err != nil {
		return err
	}
	fresh := c.Before == nil || c.Before.Kind != c.After.Kind
	if fresh && varies(name) && c.After.Kind != schema.KindOfDirectory {
		if err := a.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	switch c.After.Kind {
	case schema.KindOfDirectory:
		if !fresh {
			return nil
		}
		if err := a.root.Mkdir(name, 0o700); err != nil && !(errors.Is(err, fs.ErrExist) && varies(name)) {
			return err
		}
		return nil
	case schema.KindOfLink:
		if err := a.vacate(name, fresh); err != nil {
			return err
		}
		return a.root.Symlink(c.After.LinkTarget(), name)
	case schema.KindOfFile:
		if err := a.file(c, content, fresh); err != nil {
			return err
		}
		return a.mode(c)
	}
	if err := a.vacate(name, fresh); err != nil {
		return err
	}
	return a.special(c)
}

// vacate removes what is at a path, if something new comes there.
func (a *applier) vacate(name string, fresh bool) error {
	if fresh {
		return nil
	}
	return a.root.Remove(name)
}

// section reads the patch's sections of a change. The content is that of the last section; nil if there is none.
func (a *applier) section(c *schema.WorkspaceChange, patch *gitpatch.Reader) (io.Reader, error) {
	list, err := gitpatch.Expect(c)
	if err != nil {
		return nil, err
	}
	var content io.Reader
	for i := range list {
		s, err := patch.Next()
		if err == nil && !s.Equal(&list[i]) {
			err = fmt.Errorf("the patch has a section for %.200q in its place", s.Name)
		}
		if err != nil {
			return nil, err
		}
		if s.HasContent {
			content = patch
		}
	}
	return content, nil
}

// file writes a content, unless the file keeps its content.
func (a *applier) file(c *schema.WorkspaceChange, content io.Reader, fresh bool) error {
	name := c.Name()
	switch {
	case content != nil:
	case c.Blob != "":
		blob, err := a.open(schema.BlobsDir + strings.TrimPrefix(c.Blob, "sha256:"))
		if err != nil {
			return err
		}
		defer blob.Close()
		content = blob
	case c.After.Bytes > 0 && fresh:
		return errors.New("its content is not in the bundle")
	case c.After.Bytes > 0:
		return nil // only its mode has changed
	default:
		content = strings.NewReader("")
	}
	if !fresh {
		if err := a.root.Remove(name); err != nil && !(errors.Is(err, fs.ErrNotExist) && varies(name)) {
			return err
		}
	}
	f, err := a.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if len(c.Extents) == 0 {
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	err = f.Truncate(c.After.Bytes)
	for _, e := range c.Extents {
		if err == nil {
			_, err = io.CopyN(io.NewOffsetWriter(f, e.Offset), content, e.Bytes)
		}
	}
	return errors.Join(err, f.Close())
}

// special makes a fifo, or a socket on which nothing listens.
func (a *applier) special(c *schema.WorkspaceChange) error {
	dir, err := a.root.Open(path.Dir(c.Name()))
	if err != nil {
		return err
	}
	defer dir.Close()
	kind := uint32(unix.S_IFIFO)
	if c.After.Kind == schema.KindOfSocket {
		kind = unix.S_IFSOCK
	}
	if err := unix.Mknodat(int(dir.Fd()), path.Base(c.Name()), kind|0o600, 0); err != nil {
		return err
	}
	return a.mode(c)
}

// mode sets the mode of a path.
func (a *applier) mode(c *schema.WorkspaceChange) error {
	bits, err := strconv.ParseUint(c.After.Mode, 8, 12)
	if err != nil {
		return err
	}
	mode := fs.FileMode(bits & 0o777)
	for _, b := range []struct {
		bit  uint64
		mode fs.FileMode
	}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}} {
		if bits&b.bit != 0 {
			mode |= b.mode
		}
	}
	return a.root.Chmod(c.Name(), mode)
}
