package runner

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// workdir returns the absolute directory the child starts in.
func (s *Spec) workdir() (string, error) {
	dir := s.Workdir
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("working directory %q: %w", dir, err)
	}
	return abs, nil
}

// absLog makes the path of a log absolute: the command may start elsewhere.
func absLog(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("log %q: %w", path, err)
	}
	return abs, nil
}

// lookPath finds the program as execvp(3) would in the child: by its PATH,
// from its working directory. A name with a slash is taken as it is.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/bin:/usr/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	found := error(fs.ErrNotExist)
	for _, d := range filepath.SplitList(path) {
		file := filepath.Join(d, name)
		if d == "" {
			file = "./" + name
		}
		at := file
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		info, err := os.Stat(at)
		switch {
		case err != nil || info.IsDir():
			continue
		case info.Mode()&0o111 == 0:
			found = fs.ErrPermission
			continue
		}
		return file, nil
	}
	return "", found
}
