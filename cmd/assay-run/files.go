package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeFile writes a file for everybody to read, whole or not at all. A link to
// one is followed.
func writeFile(path string, data []byte) error {
	if err := replaceable(path); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	return err
}

// replaceable refuses a name that a whole file cannot take: root would put one
// in the place of /dev/null.
func replaceable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s exists and is not a regular file", path)
	}
	return nil
}
