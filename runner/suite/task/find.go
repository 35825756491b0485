package task

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Find returns the folders of the tasks in dir: dir itself, if it has a task.toml, or else the folders in it that have
// one, in the order of their names.
func Find(dir string) (folders []string, err error) {
	if _, err := os.Stat(filepath.Join(dir, "task.toml")); err == nil {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		folder := filepath.Join(dir, e.Name())
		switch _, err := os.Stat(filepath.Join(folder, "task.toml")); {
		case err == nil:
			folders = append(folders, folder)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return nil, err
		}
	}
	if len(folders) == 0 {
		return nil, fmt.Errorf("%s: neither it nor a folder in it has a task.toml", dir)
	}
	return folders, nil
}
