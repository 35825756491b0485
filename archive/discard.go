package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/assay-run/assay-run/schema"
)

// Discard removes the spool that an interrupted run left in dir, with all its
// evidence. The error is [ErrAlive] for a run that is alive, whose spool stays, and
// [ErrNoSpool] if there is none.
func Discard(dir, runID string) error {
	spool, lock, err := lockSpool(dir, runID)
	if err == nil {
		defer lock.Close()
		err = removeSpool(spool)
	}
	if err != nil {
		return fmt.Errorf("discard run %s: %w", runID, err)
	}
	return nil
}

// lockSpool takes the lock of an interrupted run's spool, which holds until the file
// is closed.
func lockSpool(dir, runID string) (spool string, lock *os.File, err error) {
	if !safeRunID(runID) {
		return "", nil, errors.New("not a run id")
	}
	sweep(dir)
	spool = filepath.Join(dir, runID)
	name := filepath.Join(spool, schema.RunPath)
	if err := foreign(spool); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, err
	}
	lock, err = openRegular(name, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("%s: %w", spool, ErrNoSpool)
	}
	if err != nil {
		return "", nil, err
	}
	err = flockSoon(lock)
	switch {
	case errors.Is(err, errLocked):
		err = ErrAlive
	case err == nil && !sameFile(lock, name):
		err = fmt.Errorf("%s: %w: it was sealed meanwhile", spool, ErrNoSpool)
	}
	if err != nil {
		lock.Close()
		return "", nil, err
	}
	return spool, lock, nil
}
