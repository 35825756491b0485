package main

import (
	"errors"
	"path/filepath"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/store"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

// bundle is the absolute path of the bundle. The error says what to do.
func (f *runFlags) bundle(runID string) (string, error) {
	path, err := f.named(runID)
	if err == nil {
		if path, err = filepath.Abs(path); err != nil {
			return "", nowhere(err)
		}
		return path, nil
	}
	if errors.Is(err, archive.ErrOtherFormat) {
		return "", console.WithHint(err, "end the name after --output with .tar.gz or .tar.zst")
	}
	return "", console.WithHint(err, "name a file with --output, or omit --store and unset ASSAY_RUN_STORE")
}

// named is the path of the bundle as the flags name it, or in the store.
func (f *runFlags) named(runID string) (string, error) {
	switch {
	case f.store && f.output != "":
		return "", errors.New("--store and --output cannot be used together")
	case f.output != "":
		return f.output, archive.CheckName(f.output)
	case !f.store && !store.IsDefault():
		return "assay-run-" + runID + ".tar.gz", nil
	}
	dir, err := store.DefaultDir()
	if err != nil {
		return "", err
	}
	return store.Path(dir, runID)
}
