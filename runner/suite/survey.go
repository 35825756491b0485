//go:build linux

package suite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/repository"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// survey is what a workspace consists of, and where it points. [survey.prepare] makes a tree that a plain copy keeps
// whole.
type survey struct {
	// digest is that of digestTree for a tree without repositories. Of each repository it has the commit, the index and
	// the tags, and not the pointer.
	digest string
	// place is the real path of the workspace if a plain copy at another path would not be the same: naming are the
	// files that contain the path, and the links that lead out of the workspace from there. Otherwise both are empty.
	place  string
	naming []string
	// repositories are the directories whose git repository is outside of the workspace: worktrees and submodules.
	repositories []string
	// shared are the links to existing files outside, which are the same files in each copy.
	shared []string
	fifos  int
}

// errOddFile is about a file that no copy can have.
var errOddFile = errors.New("it is a socket or a device: a workspace can only have regular files, directories, links " +
	"and fifos")

// surveyed reads a workspace. The error says why no copy of it would be whole.
func surveyed(path string) (*survey, error) {
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(root); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, errors.New("it is not a directory; if it is a tar file, unpack it, and name the directory")
	}
	s, sum := &survey{}, sha256.New()
	forms := [][]byte{[]byte(root)}
	if path != root {
		forms = append(forms, []byte(path))
	}
	err = walkTree(root, func(path, name string, info fs.FileInfo) error {
		switch own, err := s.borrows(root, path, name, info); {
		case err != nil:
			return err
		case own:
			return nil // describe has it
		}
		finder := &pathFinder{paths: forms}
		if err := digestEntry(sum, path, name, info, finder); err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeNamedPipe != 0:
			s.fifos++
		case info.Mode()&fs.ModeSymlink != 0:
			return s.link(root, path, name)
		}
		if finder.done() && !schema.InCache(name) && !recorded(name) {
			s.naming = append(s.naming, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range s.repositories {
		about, err := repository.Describe(filepath.Join(root, dir))
		if err != nil {
			return nil, fmt.Errorf("%s belongs to a git repository elsewhere: %w", names([]string{dir}), err)
		}
		fmt.Fprintf(sum, "%q %q", dir, about)
	}
	if len(s.naming) > 0 {
		s.place = root
	}
	s.digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return s, nil
}

// borrows reports whether the file is a directory's pointer to a git repository outside of the workspace, or is part of
// such a repository's directory.
func (s *survey) borrows(root, path, name string, info fs.FileInfo) (bool, error) {
	parts := strings.Split(name, "/")
	at := slices.Index(parts, ".git")
	if at < 0 {
		return false, nil
	}
	dir := filepath.Join(parts[:at]...)
	if slices.Contains(s.repositories, dir) {
		return true, nil
	}
	target := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0 && (at == len(parts)-1 || at == len(parts)-2 && gitParts[parts[at+1]]):
		var err error
		if target, err = os.Readlink(path); err != nil {
			return false, err
		}
	case at == len(parts)-1 && info.Mode().IsRegular():
		text, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}
		pointer, is := strings.CutPrefix(string(text), "gitdir:")
		if !is {
			return false, nil
		}
		target = strings.TrimSpace(pointer)
	}
	if target == "" || !filepath.IsAbs(target) &&
		schema.Below(filepath.Join(filepath.Dir(path), target), filepath.Clean(root)) {
		return false, nil
	}
	s.repositories = append(s.repositories, dir)
	return true, nil
}

// gitParts are what a repository consists of. Of other links in a repository's directory, such as that of a hook, it is
// only said where they lead.
var gitParts = map[string]bool{
	"HEAD": true, "config": true, "objects": true, "refs": true, "packed-refs": true, "index": true, "logs": true,
}

// link notes where a symbolic link leads.
func (s *survey) link(root, path, name string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	_, err = os.Stat(path)
	exists, absolute := err == nil, filepath.IsAbs(target)
	if !absolute {
		target = filepath.Join(filepath.Dir(path), target)
	}
	switch within := schema.Below(filepath.Clean(target), filepath.Clean(root)); {
	case absolute && within, !absolute && !within && exists:
		s.naming = append(s.naming, name)
	case absolute && exists:
		s.shared = append(s.shared, name)
	}
	return nil
}

// recorded reports whether a path is one of git's objects or logs, which name places of the past.
func recorded(name string) bool {
	_, rest, found := strings.Cut("/"+name, "/.git/")
	return found && (strings.HasPrefix(rest, "objects/") || strings.HasPrefix(rest, "logs/"))
}

// notes says what is unusual about the copies of a workspace.
func (s *survey) notes() (list []string) {
	if n := len(s.repositories); n > 0 {
		list = append(list, fmt.Sprintf("%s %s to a git repository elsewhere: in each copy it is a repository "+
			"of its own, at the same commit", names(s.repositories), plural(n, "belongs", "belong")))
	}
	if n := len(s.naming); n > 0 {
		list = append(list, fmt.Sprintf("%s %s where the workspace is: each copy is mounted at %s, for its attempt "+
			"alone",
			names(s.naming), plural(n, "depends on", "depend on"), schema.Readable(s.place)))
	}
	if n := len(s.shared); n > 0 {
		list = append(list, fmt.Sprintf("%s %s to files outside, which all attempts share", names(s.shared),
			plural(n, "leads", "lead")))
	}
	if s.fifos > 0 {
		list = append(list, schema.Count(s.fifos, "fifo is copied as a new one", "fifos are copied as new ones"))
	}
	return list
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// names are the first three of the given paths.
func names(paths []string) string {
	const most = 3
	var first []string
	for _, p := range paths[:min(most, len(paths))] {
		if p == "" {
			p = "the workspace itself"
		}
		first = append(first, schema.Readable(p))
	}
	text := strings.Join(first, ", ")
	if more := len(paths) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// prepare makes the directory to a copy of the workspace that plain copies keep whole.
func (s *survey) prepare(ctx context.Context, from, to string) error {
	if err := workspace.Copy(ctx, from, to); err != nil {
		return err
	}
	for _, dir := range s.repositories {
		if err := repository.Make(ctx, filepath.Join(from, dir), filepath.Join(to, dir)); err != nil {
			return fmt.Errorf("make %s a repository of its own: %w", schema.Readable(filepath.Join(from, dir)), err)
		}
	}
	return nil
}

// pathFinder is a writer that looks for paths in the text that is written to it.
type pathFinder struct {
	paths         [][]byte
	kept          []byte // the end of what was written, where a path may begin
	begun, binary bool
	found         bool
}

func (f *pathFinder) Write(p []byte) (int, error) {
	const looked = 8000 // as git does
	if !f.begun {
		f.begun, f.binary = true, bytes.IndexByte(p[:min(looked, len(p))], 0) >= 0
	}
	if f.binary || f.found {
		return len(p), nil
	}
	text := append(f.kept, p...)
	longest := 0
	for _, path := range f.paths {
		longest = max(longest, len(path))
		for at := 0; ; at++ {
			i := bytes.Index(text[at:], path)
			if i < 0 {
				break
			}
			at += i
			end := at + len(path)
			if end < len(text) && !inName(text[end]) && (at == 0 || !inName(text[at-1])) {
				f.found = true
			}
		}
	}
	f.kept = append(f.kept[:0], text[max(0, len(text)-longest-1):]...)
	return len(p), nil
}

// done ends the text, and reports whether a path is in it.
func (f *pathFinder) done() bool {
	_, _ = f.Write([]byte("\n"))
	return f.found
}

// inName reports whether a byte beside a path makes it another path.
func inName(b byte) bool {
	return b == '_' || b == '-' || b == '.' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z'
}

// placed calls start in a mount namespace where the directory from is mounted at place. What start starts stays there.
func placed(from, place string, start func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and nobody else gets it
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount(from, place, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			err = fmt.Errorf("mount the copy of the workspace at %s: %w", schema.Readable(place), err)
		} else {
			err = start()
		}
		ended <- err
	}()
	return <-ended
}

// walkTree calls visit for each file below root, and for root itself with the name ".".
func walkTree(root string, visit func(path, name string, info fs.FileInfo) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return visit(path, name, info)
	})
}
