package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// remove is removeSpool for the process that holds the lock.
func (s *Spool) remove() error {
	_ = s.lock.Close()
	return removeSpool(s.dir)
}

// removeSpool takes the spool's name away before its files, so that a half
// removed spool is never taken for an interrupted run.
func removeSpool(dir string) error {
	away, err := setAside(dir)
	if away == "" {
		return err
	}
	return removeAside(away)
}

// setAside gives a sealed spool another name, which is empty where there is no spool, or
// with an error.
func setAside(dir string) (away string, err error) {
	away = filepath.Join(filepath.Dir(dir), donePrefix+filepath.Base(dir))
	err = os.Rename(dir, away)
	if errors.Is(err, os.ErrExist) || isNotEmpty(err) { // what a killed seal left
		os.RemoveAll(away)
		err = os.Rename(dir, away)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", nil // somebody else did
	}
	if err != nil {
		return "", notRemoved(err)
	}
	return away, nil
}

func removeAside(away string) error {
	if err := os.RemoveAll(away); err != nil {
		return notRemoved(err)
	}
	return nil
}

func notRemoved(err error) error {
	return fmt.Errorf("the bundle is sealed, but its spool could not be removed: %w", err)
}
