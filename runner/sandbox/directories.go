package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
)

// directories are paths of directories without symbolic links, by the paths that lead to them. Thousands of rules
// often name files of a few directories.
type directories map[string]string

// follow is filepath.EvalSymlinks for an absolute path.
func (d directories) follow(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if info.Mode()&fs.ModeSymlink != 0 || path == "/" {
		return filepath.EvalSymlinks(path)
	}
	dir, name := filepath.Split(path)
	real, known := d[dir]
	if !known {
		if real, err = filepath.EvalSymlinks(dir); err != nil {
			return "", err
		}
		d[dir] = real
	}
	return filepath.Join(real, name), nil
}
