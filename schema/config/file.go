package config

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Format is the format of a file.
type Format int

const (
	JSON Format = iota
	YAML
)

var errNotRegular = errors.New("not a regular file; save it in one")

// ReadFile reads a regular file: all of it, or most+1 bytes of a larger one, so that the caller can tell by the
// length. It does not wait for a pipe's writer, and does not read devices. Errors name the file.
func ReadFile(path string, most int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	return io.ReadAll(io.LimitReader(f, int64(most)+1))
}

// FormatOf returns a file's format: by the extension .json, .yaml or .yml, otherwise by the first character: JSON
// starts with a brace.
func FormatOf(path string, data []byte) Format {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json":
		return JSON
	case ".yaml", ".yml":
		return YAML
	}
	if bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(data, []byte(byteOrderMark))), []byte("{")) {
		return JSON
	}
	return YAML
}
