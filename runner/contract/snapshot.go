//go:build linux || darwin

package contract

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"
)

// Limits on what can be protected.
const (
	maxProtectedBytes = 256 << 20
	maxProtectedPaths = 100_000
)

// snapshot is the state of a contract's protected paths at one moment. Their contents are in an unnamed file, which
// only this process holds and which the kernel frees with it. Each content's digest is in memory, so that nothing
// that was tampered with is ever restored. Not safe for concurrent use.
//
// The paths that globs match are protected, and everything below a matched directory. Links are never followed. All
// access stays inside the working directory (os.Root).
type snapshot struct {
	root    *os.Root
	self    fs.FileInfo // the working directory
	fixed   bool        // it is immutable
	dir     string
	globs   []string
	bases   []string // the part of each glob before its first meta character
	except  []string // absolute globs of paths that are not protected
	blob    *os.File
	size    int64
	entries []*entry // a directory comes before its entries
	index   map[string]*entry
}

// entry is one path in its original state.
type entry struct {
	path   string
	parent bool // not protected itself, but above a protected path
	stat
	fixed  bool   // immutable or append-only
	target string // of a symbolic link
	offset int64  // of a file's content in the blob
	sum    [sha256.Size]byte
}

// stat is the metadata of a path that is compared and restored.
type stat struct {
	mode     fs.FileMode
	size     int64
	mtime    time.Time
	uid, gid int
	dev, ino uint64
	links    uint64
}

func statOf(info fs.FileInfo) stat {
	s := stat{mode: info.Mode(), size: info.Size(), mtime: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.uid, s.gid = int(sys.Uid), int(sys.Gid)
		s.dev, s.ino, s.links = uint64(sys.Dev), uint64(sys.Ino), uint64(sys.Nlink)
	}
	return s
}

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// samePermissions reports whether mode bits and owner are equal.
func (s stat) samePermissions(o stat) bool {
	return s.mode&modeBits == o.mode&modeBits && s.uid == o.uid && s.gid == o.gid
}

// protect takes a snapshot of what globs match in workdir. The contents go to an unlinked file in tempDir ("" is the
// system's), which must be outside workdir and have enough space. It is not an error if nothing matches:
// [snapshot.Restore] then removes paths that appear later.
func protect(ctx context.Context, workdir string, globs, except []string, tempDir string) (_ *snapshot, err error) {
	s := &snapshot{dir: workdir, except: except, index: make(map[string]*entry)}
	defer func() {
		if err != nil {
			s.Release()
			err = fmt.Errorf("protect paths in %s: %w", workdir, err)
		}
	}()
	for _, g := range globs {
		if g = path.Clean(g); g == "." {
			g = "**"
		}
		base, _ := doublestar.SplitPattern(g)
		s.globs, s.bases = append(s.globs, g), append(s.bases, base)
	}
	if s.root, err = os.OpenRoot(workdir); err != nil {
		return nil, err
	}
	if s.self, err = s.root.Stat("."); err != nil {
		return nil, err
	}
	s.fixed = s.isFixed(".")
	if s.blob, err = os.CreateTemp(tempDir, ".assay-protected-*"); err != nil {
		return nil, err
	}
	if err = os.Remove(s.blob.Name()); err != nil {
		return nil, err
	}
	return s, s.walk(".", false, func(p string, covered bool, info fs.FileInfo) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if !covered {
			return true, nil
		}
		return true, s.take(p, info)
	})
}

// Unmatched lists the globs that matched no path when the snapshot was taken, which may be misspelt.
func (s *snapshot) Unmatched() []string {
	var out []string
	for _, g := range s.globs {
		met := slices.ContainsFunc(s.entries, func(e *entry) bool {
			ok, _ := doublestar.Match(g, e.path)
			return ok && !e.parent
		})
		if !met {
			out = append(out, s.name(g))
		}
	}
	return out
}

// name is a path as reports have it: relative to the working directory, or absolute.
func (s *snapshot) name(p string) string {
	if s.dir == "/" {
		return path.Join("/", p)
	}
	return p
}

// excepted reports whether a path is not protected, nor what is below it.
func (s *snapshot) excepted(p string) bool {
	return slices.ContainsFunc(s.except, func(g string) bool {
		ok, _ := doublestar.Match(g, path.Join(s.dir, p))
		return ok
	})
}

// covers reports whether a path, relative to the working directory, is protected.
func (s *snapshot) covers(p string) bool {
	for ; p != "." && p != "/" && !strings.HasPrefix(p, "../"); p = path.Dir(p) {
		if slices.ContainsFunc(s.globs, func(g string) bool { ok, _ := doublestar.Match(g, p); return ok }) {
			return true
		}
	}
	return false
}

// Release frees the snapshot. It may be called twice.
func (s *snapshot) Release() {
	if s.blob != nil {
		s.blob.Close()
	}
	if s.root != nil {
		s.root.Close()
	}
}

// take adds a protected path, after the directories above it.
func (s *snapshot) take(p string, info fs.FileInfo) error {
	if len(s.entries) >= maxProtectedPaths {
		return fmt.Errorf("more than %d protected paths; narrow the globs", maxProtectedPaths)
	}
	if err := s.takeParents(path.Dir(p)); err != nil {
		return err
	}
	e := &entry{path: p, stat: statOf(info), fixed: s.isFixed(p)}
	var err error
	switch e.mode.Type() {
	case 0:
		err = s.store(e)
	case fs.ModeDir:
	case fs.ModeSymlink:
		e.target, err = s.root.Readlink(p)
	default:
		err = fmt.Errorf("%s is not a file, a directory or a link, so it cannot be protected", p)
	}
	if err != nil {
		return err
	}
	s.entries = append(s.entries, e)
	s.index[p] = e
	return nil
}

func (s *snapshot) takeParents(dir string) error {
	if dir == "." || s.index[dir] != nil {
		return nil
	}
	if err := s.takeParents(path.Dir(dir)); err != nil {
		return err
	}
	info, err := s.root.Lstat(dir)
	if err != nil {
		return err
	}
	e := &entry{path: dir, parent: true, stat: statOf(info), fixed: s.isFixed(dir)}
	s.entries = append(s.entries, e)
	s.index[dir] = e
	return nil
}

// store copies a file's content into the blob.
func (s *snapshot) store(e *entry) error {
	f, err := s.open(e.path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	left := maxProtectedBytes - s.size
	n, err := io.Copy(io.MultiWriter(io.NewOffsetWriter(s.blob, s.size), sum), io.LimitReader(f, left+1))
	if err != nil {
		return fmt.Errorf("copy %s: %w", e.path, err)
	}
	if n > left {
		return fmt.Errorf("the protected paths hold more than %d bytes; narrow the globs", maxProtectedBytes)
	}
	e.offset, e.size = s.size, n
	sum.Sum(e.sum[:0])
	s.size += n
	return nil
}

// open opens a regular file for reading, even if another file has replaced it since.
func (s *snapshot) open(p string) (*os.File, error) {
	f, err := s.root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no longer a file", p)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// walk visits every directory that may contain a protected path, and every path in it. visit gets whether a glob
// covers the path, and returns whether to descend.
func (s *snapshot) walk(
	dir string, covered bool, visit func(p string, covered bool, info fs.FileInfo) (bool, error),
) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return &walkError{dir, err}
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return &walkError{dir, err}
	}
	for _, name := range names {
		p := path.Join(dir, name)
		if s.excepted(p) {
			continue
		}
		in := covered || s.matches(p)
		if !in && !s.leadsTo(p) {
			continue
		}
		info, err := s.root.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return &walkError{p, err}
		}
		down, err := visit(p, in, info)
		if err != nil {
			return err
		}
		if down && info.IsDir() {
			if err := s.walk(p, in, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *snapshot) matches(p string) bool {
	for _, g := range s.globs {
		if ok, _ := doublestar.Match(g, p); ok {
			return true
		}
	}
	return false
}

// leadsTo reports whether a glob could match something below p.
func (s *snapshot) leadsTo(p string) bool {
	for _, base := range s.bases {
		if base == "." || strings.HasPrefix(base+"/", p+"/") || strings.HasPrefix(p+"/", base+"/") {
			return true
		}
	}
	return false
}

// Restore restores every protected path, and removes what was added. Nothing else may write meanwhile. Files are
// never written in place: a new file takes the name, so that a link cannot redirect the content. during says who made
// the changes, such as schema.DuringAgent; check names the check.
func (s *snapshot) Restore(during, check string) restoration {
	r := &restorer{snapshot: s, during: during, check: check, modes: make(map[string]stat)}
	now, err := os.Stat(s.dir)
	if err == nil && !os.SameFile(now, s.self) {
		err = errors.New("another directory has taken its place")
	}
	if err != nil {
		r.report(".", "replaced", fmt.Errorf("the working directory is gone: %w", err))
		return r.result()
	}
	r.release(".", s.fixed)
	for _, e := range s.entries {
		r.release(e.path, e.fixed)
	}
	for _, e := range s.entries {
		switch e.mode.Type() {
		case fs.ModeDir:
			r.directory(e)
		case fs.ModeSymlink:
			r.link(e)
		default:
			r.file(e)
		}
	}
	r.removeAdded()
	for _, e := range slices.Backward(s.entries) {
		if e.mode.IsDir() {
			r.finishDirectory(e)
		}
	}
	return r.result()
}

// walkError is a path that could not be read.
type walkError struct {
	path string
	err  error
}

func (e *walkError) Error() string { return fmt.Sprintf("look at %s: %v", e.path, e.err) }

func (e *walkError) Unwrap() error { return e.err }
