//go:build linux

package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"

	"github.com/assay-run/assay-run/schema"
)

// writeResults replaces results.json in dir, whole or not at all.
func writeResults(dir string, r *schema.SuiteResults) error {
	f, err := os.CreateTemp(dir, ".results-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	b := bufio.NewWriterSize(f, 64<<10)
	if err = schema.WriteDocument(b, r); err == nil {
		err = b.Flush()
	}
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, "results.json"))
}
