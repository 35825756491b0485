package main

import (
	"errors"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/store"
)

// bundle is the path of the run's bundle: --output if given, else in the store if
// --store or the environment asks for it, else in the current directory.
func (f *runFlags) bundle(runID string) (string, error) {
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
