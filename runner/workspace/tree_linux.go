package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// Bounds of a walk.
const (
	maxFiles = 1_000_000
	maxDepth = 200 // a directory is open for each
	maxGaps  = 100
)

// state is what a walk sees of a path.
type state struct {
	mode         uint32 // of stat(2)
	size, blocks int64
	ino          uint64
	mtime, ctime time.Time
	target       string // of a link
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

// same reports whether nothing that is compared can have changed.
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
	return state{mode: st.Mode, size: st.Size, blocks: st.Blocks, ino: st.Ino, mtime: time.Unix(st.Mtim.Unix()),
		ctime: time.Unix(st.Ctim.Unix())}
}

func stateOfInfo(info fs.FileInfo) state {
	st := info.Sys().(*syscall.Stat_t)
	return state{mode: st.Mode, size: st.Size, blocks: st.Blocks, ino: st.Ino, mtime: time.Unix(st.Mtim.Unix()),
		ctime: time.Unix(st.Ctim.Unix())}
}

// tree is what a walk saw: every path below a directory, relative to it. What could not be seen is in gaps.
type tree struct {
	files map[string]state
	gaps  []schema.WorkspaceGap
	// newest is when a file changed last.
	newest time.Time
}

// walker is a walk in progress.
type walker struct {
	*tree
	ctx  context.Context
	skip map[string]bool // by relative path
	dev  uint64
}

// walk looks at all below dir but for the paths in skip. Directories on which another file system is mounted are gaps.
// The error is ctx's.
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
		t.gaps = append(t.gaps, schema.WorkspaceGap{Path: strings.ToValidUTF8(name, "\uFFFD"), Reason: reason})
	}
}

// directory looks at what is in a directory, and closes it.
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

// settle waits until what changes from now on has another time than what a walk saw: the clock of file systems ticks
// every few milliseconds.
func (t *tree) settle(ctx context.Context) {
	for ctx.Err() == nil {
		var now unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil {
			return
		}
		if ahead := t.newest.Sub(time.Unix(now.Unix())); ahead < 0 || ahead > time.Second {
			return // it ticked, or the file system has another clock
		}
		time.Sleep(time.Millisecond)
	}
}
