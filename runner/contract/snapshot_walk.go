//go:build linux || darwin

package contract

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// walk visits every directory that can lead to a protected path and every
// path in it. visit is told whether the path is covered by a glob, and says
// whether to go on below it.
func (s *Snapshot) walk(
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

// walkError is a path that could not be looked at.
type walkError struct {
	path string
	err  error
}

func (e *walkError) Error() string { return fmt.Sprintf("look at %s: %v", e.path, e.err) }

func (e *walkError) Unwrap() error { return e.err }

func (s *Snapshot) matches(p string) bool {
	for _, g := range s.globs {
		if ok, _ := doublestar.Match(g, p); ok {
			return true
		}
	}
	return false
}

// leadsTo reports whether a glob could match something below p.
func (s *Snapshot) leadsTo(p string) bool {
	for _, base := range s.bases {
		if base == "." || strings.HasPrefix(base+"/", p+"/") || strings.HasPrefix(p+"/", base+"/") {
			return true
		}
	}
	return false
}
