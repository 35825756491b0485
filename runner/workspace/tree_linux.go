package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// Limits of a walk.
const (
	maxFiles = 1_000_000
	maxDepth = 200 // each level keeps a directory open
	maxGaps  = 100
)

// state is what a walk records about a path.
type state struct {
	mode         uint32 // of stat(2)
	size, blocks int64
	ino, links   uint64
	rdev         uint64 // of a device
	mtime, ctime time.Time
	target       string // of a symbolic link
}

func (s *state) kind() string {
	switch s.mode & unix.S_IFMT {
	case unix.S_IFREG:
		return schema.KindOfFile
	case unix.S_IFDIR:
		return schema.KindOfDirectory
	case unix.S_IFLNK:
		return schema.KindOfLink
	case unix.S_IFIFO:
		return schema.KindOfFifo
	case unix.S_IFSOCK:
		return schema.KindOfSocket
	}
	return schema.KindOfDevice
}

// same reports whether everything that is compared is the same.
func (s *state) same(o *state) bool {
	if s.mode != o.mode {
		return false
	}
	switch s.mode & unix.S_IFMT {
	case unix.S_IFREG:
		return s.ino == o.ino && s.size == o.size && s.mtime.Equal(o.mtime) && s.ctime.Equal(o.ctime)
	case unix.S_IFLNK:
		return s.target == o.target
	}
	return true
}

func stateOf(st *unix.Stat_t) state {
	return state{mode: st.Mode, size: st.Size, blocks: st.Blocks, ino: st.Ino, links: uint64(st.Nlink), rdev: st.Rdev,
		mtime: time.Unix(st.Mtim.Unix()), ctime: time.Unix(st.Ctim.Unix())}
}

func stateOfInfo(info fs.FileInfo) state {
	st := info.Sys().(*syscall.Stat_t)
	return state{mode: st.Mode, size: st.Size, blocks: st.Blocks, ino: st.Ino, mtime: time.Unix(st.Mtim.Unix()),
		ctime: time.Unix(st.Ctim.Unix())}
}

// tree is the result of a walk: every path below a directory, relative to it. gaps lists what could not be read.
type tree struct {
	files map[string]state
	gaps  []schema.WorkspaceGap
	// newest is the latest change time of a file.
	newest time.Time
	// names are the paths in files, sorted; nil until needed.
	names []string
}

// sorted returns the paths in byte order.
func (t *tree) sorted() []string {
	if t.names == nil {
		t.names = slices.Sorted(maps.Keys(t.files))
	}
	return t.names
}

// sized is a path with the size of the file.
type sized struct {
	name string
	size int64
}

// smallest lists the files for which is returns true, the smallest first.
func (t *tree) smallest(is func(name string) bool) []sized {
	var list []sized
	for name, s := range t.files {
		if s.mode&unix.S_IFMT == unix.S_IFREG && is(name) {
			list = append(list, sized{name, s.size})
		}
	}
	slices.SortFunc(list, func(a, b sized) int {
		return cmp.Or(cmp.Compare(a.size, b.size), strings.Compare(a.name, b.name))
	})
	return list
}

// affordable returns how many of the first files are hashed.
func affordable(list []sized) int {
	left := int64(maxHashed)
	for i, f := range list[:min(len(list), maxHashedFiles)] {
		if left -= f.size; left < 0 {
			return i
		}
	}
	return min(len(list), maxHashedFiles)
}

// belongs reports whether a path belongs to the workspace proper: it is neither git's own nor in a tool's cache.
func belongs(name string) bool { return !inGit(name) && !schema.InCache(name) }

// inGit reports whether a path is a directory named .git, or below one.
func inGit(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".git" {
			return true
		}
	}
	return false
}

// digest identifies a workspace: kinds, sizes and paths of what belongs to it, targets of links, which files are
// executable, and the contents of the smallest files. id returns git's id of a content; if it returns "", the digest
// is empty.
func (t *tree) digest(id func(name string) string) string {
	contents := map[string]bool{}
	small := t.smallest(belongs)
	for _, f := range small[:affordable(small)] {
		contents[f.name] = true
	}
	sum := sha256.New()
	var line []byte
	for _, name := range t.sorted() {
		if !belongs(name) {
			continue
		}
		s := t.files[name]
		mark, size, content := "-", int64(0), "-"
		if s.mode&unix.S_IFMT == unix.S_IFREG {
			if size = s.size; s.mode&0o100 != 0 {
				mark = "x"
			}
			if contents[name] {
				if content = id(name); content == "" {
					return ""
				}
			}
		}
		line = append(append(append(append(line[:0], s.kind()...), ' '), mark...), ' ')
		line = append(append(append(strconv.AppendInt(line, size, 10), ' '), content...), ' ')
		line = append(append(append(append(line, name...), 0), s.target...), 0)
		sum.Write(line)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// walker is the state of a walk.
type walker struct {
	*tree
	ctx  context.Context
	skip map[string]bool // by relative path
	dev  uint64
}

// walk records everything below dir except the paths in skip. Mount points of other file systems become gaps. The
// error is ctx's.
func walk(ctx context.Context, dir string, skip []string) (*tree, error) {
	w := &walker{tree: &tree{files: map[string]state{}}, ctx: ctx, skip: map[string]bool{}}
	for _, name := range skip {
		if rel, err := filepath.Rel(dir, name); err == nil {
			w.skip[rel] = true
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	var st unix.Stat_t
	if err == nil {
		if err = unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		w.gap(".", fmt.Sprintf("the directory cannot be opened: %v", err))
		return w.tree, nil
	}
	w.dev = st.Dev
	return w.tree, w.directory(fd, ".", 0)
}

func (t *tree) gap(name, reason string) {
	if len(t.gaps) < maxGaps {
		t.gaps = append(t.gaps, schema.WorkspaceGap{Path: schema.Readable(name), Reason: reason})
	}
}

// directory records the entries of a directory, and closes it.
func (w *walker) directory(fd int, name string, depth int) error {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		w.gap(name, fmt.Sprintf("the directory cannot be read: %v", err))
	}
	for _, base := range names {
		if err := w.entry(fd, path.Join(name, base), base, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(fd int, name, base string, depth int) error {
	if w.skip[name] {
		return nil
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		w.gap(name, fmt.Sprintf("it cannot be looked at: %v", err))
		return nil
	case len(w.files) >= maxFiles:
		if len(w.gaps) == 0 || w.gaps[len(w.gaps)-1].Path != "." {
			w.gap(".", fmt.Sprintf("there are more than %d files; the others were not compared", maxFiles))
		}
		return nil
	}
	s := stateOf(&st)
	if s.ctime.After(w.newest) {
		w.newest = s.ctime
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		target := make([]byte, 4096)
		n, err := unix.Readlinkat(fd, base, target)
		if err != nil {
			w.gap(name, fmt.Sprintf("the link cannot be read: %v", err))
			return nil
		}
		s.target = string(target[:n])
	case st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Dev != w.dev:
		w.gap(name, "another file system is mounted there, which is not compared")
		return nil
	}
	w.files[name] = s
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if depth == maxDepth {
		w.gap(name, fmt.Sprintf("it is more than %d directories deep, and what is in it was not compared", maxDepth))
		return nil
	}
	inner, err := unix.Openat(fd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		w.gap(name, fmt.Sprintf("the directory cannot be opened: %v", err))
		return nil
	}
	return w.directory(inner, name, depth+1)
}

// differs returns the first path that differs between two trees; empty: none.
func (t *tree) differs(o *tree) string {
	var found []string
	for name, s := range t.files {
		if is, ok := o.files[name]; !ok || !s.same(&is) {
			found = append(found, name)
		}
	}
	for name := range o.files {
		if _, ok := t.files[name]; !ok {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// settle waits until changes from now on get a later time than what a walk saw: file system clocks advance only every
// few milliseconds.
func (t *tree) settle(ctx context.Context) {
	for ctx.Err() == nil {
		var now unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil {
			return
		}
		if ahead := t.newest.Sub(time.Unix(now.Unix())); ahead < 0 || ahead > time.Second {
			return // the clock advanced, or the file system has a different one
		}
		time.Sleep(time.Millisecond)
	}
}
