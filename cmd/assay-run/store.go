package main

import (
	"errors"

	"github.com/assay-run/assay-run/archive/store"
)

// bundle is where the run's bundle goes: where --output says, else into the
// store when --store or the environment asks for that, else beside the user.
func (f *runFlags) bundle(runID string) (string, error) {
	switch {
	case f.store && f.output != "":
		return "", errors.New("--store and --output cannot be given together")
	case f.output != "":
		return f.output, nil
	case !f.store && !store.IsDefault():
		return "assay-run-" + runID + ".tar.gz", nil
	}
	dir, err := store.DefaultDir()
	if err != nil {
		return "", err
	}
	return store.Path(dir, runID)
}
